export function CompareView({ a, b }: { a: string; b: string; digest: string | null }) {
  return <h1>{a} and {b}</h1>;
}
