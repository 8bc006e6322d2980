// Texts from one catalogue a language; keys are equal in all (a test compares them).
import { signal } from "@preact/signals";
import { ROOT } from "./root";
import { keep, kept } from "./store";
import english from "./text/en.json";

type Catalogue = Record<string, string>;
export type Language = "en" | "zh";
export const LANGUAGES: Record<Language, string> = { en: "English", zh: "中文" };
const catalogues: Partial<Record<Language, Catalogue>> = { en: english };
export const language = signal<Language>("en");
let plural = new Intl.PluralRules("en");

/** Return a text of the catalogue, with `{name}` replaced; `n` chooses between `KEY.one` and `KEY.other`. */
export function t(key: string, values: Record<string, string | number> = {}): string {
  const known: Catalogue = catalogues[language.value] ?? english;
  const form = typeof values.n === "number" ? `${key}.${plural.select(values.n)}` : key;
  const text = known[form] ?? known[`${key}.other`] ?? known[key] ?? (english as Catalogue)[key];
  if (text === undefined) return key;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === "number" ? value.toLocaleString(language.value) : value;
  });
}

/** Whether the catalogue has a text of its own for a key. */
export function has(key: string): boolean {
  return key in english;
}

/** Return the words for a code of the server, such as `no_fit`. */
export function word(kind: string, code: string): string {
  if (has(`${kind}.${code}`)) return t(`${kind}.${code}`);
  return code.replaceAll("_", " ").replace(/([a-z])([A-Z])/g, (_, before: string, after: string) => `${before} ${after.toLowerCase()}`);
}

export async function use(wanted: Language): Promise<void> {
  const file = __TEXTS__[wanted];
  if (!catalogues[wanted] && file) {
    const answer = await fetch(new URL(`assets/${file}`, ROOT));
    catalogues[wanted] = (await answer.json()) as Catalogue;
  }
  plural = new Intl.PluralRules(wanted);
  document.documentElement.lang = wanted;
  language.value = wanted;
  keep("language", wanted);
}

export function preferred(): Language {
  return kept<Language>("language", navigator.language.startsWith("zh") ? "zh" : "en");
}
