export function HistoryView({ evalName }: { evalName: string }) {
  return <h1>{evalName}</h1>;
}
