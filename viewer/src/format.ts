// Numbers as the terminal prints them. null is a value that is not known.
export const UNKNOWN = "\u2013";

export function percent(share: number | null): string {
  return share === null ? UNKNOWN : `${(100 * share).toFixed(1)}%`;
}
