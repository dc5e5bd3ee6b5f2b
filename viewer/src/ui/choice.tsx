// A list of choices with its label, as the filters have it.
export interface Option {
  value: string;
  title: string;
}

interface ChoiceProps {
  label: string;
  /** True if the options say what they are, so that only screen readers need the label. */
  hidesLabel?: boolean;
  value: string;
  options: Option[];
  onChange(value: string): void;
  class?: string;
}

export function Choice({ label, hidesLabel = false, value, options, onChange, class: extra = "" }: ChoiceProps) {
  return (
    <label class={`choice ${extra}`}>
      {!hidesLabel && <span class="choice-label">{label}</span>}
      <select aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => <option key={option.value} value={option.value}>{option.title}</option>)}
      </select>
    </label>
  );
}
