// Numbers as the terminal prints them (pytest_osmosis/text/numbers.py). null is a value that is not known.
import type { Interval, RunEntry } from "./shapes";

export const UNKNOWN = "-";

/** The least score that is shown with an exponent. */
const HUGE = 1e15;

/** `value` with `digits` decimals; a tie goes to the even digit, as in Python. */
export function fixed(value: number, digits: number): string {
  const exact = value.toFixed(Math.min(100, digits + 25));
  if (/50{24}$/.test(exact)) {
    const short = exact.slice(0, digits ? -25 : -26); // without decimals, the point goes too
    if ("02468".includes(short.slice(-1))) return short;
  }
  return value.toFixed(digits);
}

/** Put separators between thousands: "1,234.5". */
function grouped(text: string): string {
  const [whole, ...rest] = text.split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}

export function count(n: number | null | undefined): string {
  return n === null || n === undefined ? UNKNOWN : grouped(String(n));
}

/** A count with its noun: "1 row", "1,000 rows". */
export function plural(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A score or a ratio: "0.720", "1,234.5". Pass rates are printed so too. */
export function score(value: number | null | undefined): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (Math.abs(value) >= HUGE) return short(value, 4);
  return Math.abs(value) < 1000 ? fixed(value, 3) : grouped(fixed(value, 1));
}

/** A number as short as it can be, with at most six digits: "0.5", "0.333333", "1e-07". */
export function plain(value: number, most = 6): string {
  return String(Number(value.toPrecision(most)));
}

/** A difference of scores or ratios, with its sign: "+0.020". */
export function difference(value: number): string {
  return (value > 0 ? "+" : "") + score(value || 0);
}

/** The bounds of an interval: "0.680 to 0.760", "-" without one. */
export function interval(bounds: Pick<Interval, "low" | "high"> | null | undefined): string {
  return bounds ? `${score(bounds.low)} to ${score(bounds.high)}` : UNKNOWN;
}

/** An amount of US dollars: with cents from $1, and with two significant digits below. */
export function money(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return UNKNOWN;
  if (usd === 0) return "$0";
  if (usd >= 0.995) return `$${grouped(fixed(usd, 2))}`;
  return `$${fixed(usd, Math.max(2, 1 - Math.floor(Math.log10(usd))))}`;
}

/** The cost of an eval run; ">=" if that of some runs is unknown. */
export function runCost(run: RunEntry): string {
  if (run.tokens === null) return UNKNOWN;
  if (run.cost_usd === null) return "unknown";
  return run.n_cost_unknown ? `>= ${money(run.cost_usd)}` : money(run.cost_usd);
}

/** A moment in UTC, to the minute, or with 19 `letters` to the second: "2026-11-20 14:03 UTC". */
export function moment(iso: string | null | undefined, letters = 16): string {
  return iso ? `${iso.slice(0, letters).replace("T", " ")} UTC` : UNKNOWN;
}

/** A duration in readable units: "0.01 s", "3.2 s", "1 min 15 s", "2 h 1 min". */
export function duration(ms: number | null | undefined): string {
  return span(ms === null || ms === undefined ? null : ms / 1000);
}

/** The same of seconds. */
export function span(seconds: number | null): string {
  if (seconds === null) return UNKNOWN;
  if (seconds < 0.995) return `${fixed(seconds, 2)} s`;
  if (seconds < 59.95) return `${fixed(seconds, 1)} s`;
  const rounded = Number(fixed(seconds, 0));
  const minutes = Math.floor(rounded / 60);
  return minutes < 60 ? `${minutes} min ${rounded % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** A duration on an axis: short ones in milliseconds, so that they differ. */
export function latency(ms: number): string {
  return ms < 1000 ? `${plain(ms)} ms` : duration(ms);
}

/** A number with so many significant digits, six for most, as `%g` prints it: "0.333333", "1e-05". */
export function short(value: number, most = 6): string {
  if (Object.is(value, -0)) return "-0";
  const [digits, power] = value.toExponential(most - 1).split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < most) return plain(value, most);
  return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

/** A value and its bound, short, but with enough digits to look different if they are. */
export function distinguishable(value: number, bound: number): [string, string] {
  const pair: [string, string] = [short(value), short(bound)];
  return pair[0] === pair[1] && value !== bound ? [String(value), String(bound)] : pair;
}
