// Settings of the viewer, kept by the browser: nothing of them is sent.

/** Return a kept setting; the default where the browser keeps none. */
export function kept<T>(name: string, otherwise: T): T {
  try {
    const text = localStorage.getItem(`penstock.${name}`);
    return text === null ? otherwise : (JSON.parse(text) as T);
  } catch {
    return otherwise;
  }
}

export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(`penstock.${name}`, JSON.stringify(value));
  } catch {
    // private windows may keep nothing
  }
}
