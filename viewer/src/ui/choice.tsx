// A list of choices with its label, as the filters have it.
export interface Option {
  value: string;
  title: string;
}

export function Choice({ label, value, options, onChange }: { label: string; value: string; options: Option[]; onChange(value: string): void }) {
  return (
    <label class="choice">
      <span class="choice-label">{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => <option key={option.value} value={option.value}>{option.title}</option>)}
      </select>
    </label>
  );
}
