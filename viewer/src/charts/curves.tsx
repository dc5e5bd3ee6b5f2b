// pass@k and pass^k over k, as Python computed them.
import type { PassCurve } from "../shapes";
import { score } from "../format";
import { across, Axes, Figure, FRAME, up } from "./figure";

export function PassCurves({ curve, title }: { curve: PassCurve; title: string }) {
  const { k, pass_at_k: at, pass_hat_k: hat } = curve;
  const x = across(k[0], k[k.length - 1]);
  const y = up(0, 1);
  const shown = k.length > 8 ? k.filter((_, place) => place % Math.ceil(k.length / 8) === 0) : k;
  return (
    <Figure title={title} note="by k, the number of tries" summary={`${title}: pass@k and pass^k`}
      table={{ head: ["k", "pass@k", "pass^k"], rows: k.map((each, place) => [String(each), score(at[place]), score(hat[place])]) }}>
      <svg viewBox={`0 0 ${FRAME.width} ${FRAME.height}`} class="chart" aria-hidden="true">
        <Axes x={x} y={y} xTicks={shown.map((each) => ({ at: each, text: String(each) }))} yTicks={[0, 0.5, 1].map((each) => ({ at: each, text: each.toFixed(1) }))} />
        <Line name="pass@k" values={at} k={k} x={x} y={y} mark={(cx, cy) => <circle cx={cx} cy={cy} r="2.5" />} />
        <Line name="pass^k" values={hat} k={k} x={x} y={y} mark={(cx, cy) => <rect x={cx - 2.5} y={cy - 2.5} width="5" height="5" />} />
      </svg>
      <p class="legend">
        <span><i class="swatch swatch-round part-plain" />pass@k: at least one of k passes</span>
        <span><i class="swatch swatch-solid part-other" />pass^k: all k pass</span>
      </p>
    </Figure>
  );
}

interface LineProps {
  name: "pass@k" | "pass^k";
  values: (number | null)[];
  k: number[];
  x(value: number): number;
  y(value: number): number;
  mark(x: number, y: number): preact.JSX.Element;
}

function Line({ name, values, k, x, y, mark }: LineProps) {
  const known = k.map((each, place) => ({ k: each, value: values[place] })).filter((each): each is { k: number; value: number } => each.value !== null);
  return (
    <g class={name === "pass@k" ? "curve curve-at" : "curve curve-hat"}>
      <polyline points={known.map((each) => `${x(each.k)},${y(each.value)}`).join(" ")} />
      {known.map((each) => <g key={each.k}><title>{`${name.replace("k", String(each.k))}: ${score(each.value)}`}</title>{mark(x(each.k), y(each.value))}</g>)}
    </g>
  );
}
