// Bins of a histogram: counts of what is shown, no statistics.
export interface Bin {
  /** Both ends; a bin of a single value has equal ones. The last bin also holds what is larger than `high` if `isOpen`. */
  low: number;
  high: number;
  isOpen: boolean;
  /** How many values are in it, by the group of each. */
  counts: number[];
}

export interface Binned {
  bins: Bin[];
  /** True if each bin is one value. */
  isDiscrete: boolean;
  most: number;
}

const MOST_VALUES = 8;
const BINS = 20;
const MOST = 8e307;

/** A value as far as charts reach: a number can still hold the distance of any two. */
export function drawn(value: number | null): number | null {
  return value && Math.max(-MOST, Math.min(MOST, value));
}

/** Put values into bins; `group` numbers the part of a bar that a value belongs to. Null values are left out. */
export function binned(values: ArrayLike<number | null>, group: (at: number) => number, nGroups: number, bounds?: [number, number]): Binned {
  const known: number[] = [];
  for (let at = 0; at < values.length; at++) if (values[at] !== null && group(at) >= 0) known.push(at);
  const numbers = Float64Array.from(known, (at) => drawn(values[at])!).sort();
  if (!numbers.length) return { bins: [], isDiscrete: false, most: 0 };
  const distinct = distinctValues(numbers);
  const bins = distinct ? distinct.map((value) => bin(value, value)) : ranges(numbers, bounds);
  function bin(low: number, high: number, isOpen = false): Bin {
    return { low, high, isOpen, counts: new Array<number>(nGroups).fill(0) };
  }
  function ranges(sorted: Float64Array, [least, most] = spread(sorted)): Bin[] {
    const width = niceStep((most - least) / BINS);
    const begin = Math.floor(least / width + 1e-9);
    const end = Math.max(begin + 1, Math.ceil(most / width - 1e-9));
    const made: Bin[] = [];
    for (let step = begin; step < end; step++) made.push(bin(clean(step * width), clean((step + 1) * width)));
    if (sorted[sorted.length - 1] > made[made.length - 1].high) made.push(bin(made[made.length - 1].high, made[made.length - 1].high, true));
    return made;
  }
  for (const at of known) bins[placeOf(bins, values[at]!)].counts[group(at)]++;
  return { bins, isDiscrete: distinct !== null, most: Math.max(...bins.map(total)) };
}

export function total(bin: Bin): number {
  return bin.counts.reduce((sum, count) => sum + count, 0);
}

/** The different values, if they are few. */
function distinctValues(sorted: Float64Array): number[] | null {
  const distinct: number[] = [];
  for (const value of sorted)
    if (value !== distinct[distinct.length - 1]) {
      if (distinct.length === MOST_VALUES) return null;
      distinct.push(value);
    }
  return distinct;
}

/** The ends of the bins: a few values far above all others do not squeeze these into one bar. */
function spread(sorted: Float64Array): [number, number] {
  const most = sorted[sorted.length - 1];
  const nearly = sorted[Math.floor(0.98 * (sorted.length - 1))];
  const isTail = sorted[0] >= 0 && most > 2 * nearly && nearly > sorted[0];
  return [sorted[0] >= 0 && sorted[0] < nearly / 3 ? 0 : sorted[0], isTail ? nearly : most];
}

/** The last bin that begins at or below a value. */
function placeOf(bins: Bin[], value: number): number {
  let low = 0, high = bins.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (bins[middle].low <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a width. */
export function niceStep(width: number): number {
  const power = 10 ** Math.floor(Math.log10(width || 1));
  const factor = [1, 2, 2.5, 5, 10].find((each) => each * power >= width * (1 - 1e-9))!;
  return factor * power;
}

/** Ends of bins without the noise of binary fractions: 0.15, not 0.15000000000000002. */
function clean(value: number): number {
  return Number(value.toPrecision(12));
}

/** Round numbers from `least` to `most`, about `wanted` of them. */
export function ticks(least: number, most: number, wanted = 4): number[] {
  const step = niceStep((most - least) / wanted);
  const made: number[] = [];
  for (let each = Math.ceil(least / step - 1e-9); each * step <= most + step * 1e-9; each++) made.push(clean(each * step));
  return made;
}
