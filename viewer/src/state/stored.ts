// What a browser keeps between visits. Sandboxed hosts of reports refuse it: then nothing is kept.
export function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function store(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // It is forgotten with the page.
  }
}
