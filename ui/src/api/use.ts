// Answers of the API as state of a component: asked for when it is shown, and again when its question changes.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { getKept, Refused, type Query } from "./client";
import { type Live, type Topic, useChanges } from "./live";

export type Loaded<T> = {
  /** The last answer; null before the first one. */
  value: T | null;
  problem: Error | null;
  busy: boolean;
  /** When the value was worked out (ms), where that is a while ago; else 0. */
  madeMs: number;
  reload: () => Promise<void>;
};

/** Age (s) from which a kept answer is shown with its time, and asked for again until the server has a newer one. */
const OLD_S = 20;
const AGAIN_S = [2, 5, 15, 30];

/** Ask for `path`; an empty path asks for nothing. Answers of former questions are dropped.
 * `maxStaleS`: how old the first answer may be, where sums over a long past take the server some seconds. */
export function useGet<T>(path: string, query: Query = {}, maxStaleS = 0): Loaded<T> {
  const [state, set] = useState<{ value: T | null; problem: Error | null; busy: boolean; of: string; madeMs: number }>({
    value: null, problem: null, busy: true, of: "", madeMs: 0,
  });
  const question = path + JSON.stringify(query);
  const running = useRef<AbortController | null>(null);
  const load = useCallback((staleS: number) => {
    running.current?.abort();
    if (!path) return Promise.resolve();
    const own = (running.current = new AbortController());
    set((known) => ({ ...known, value: known.of === path ? known.value : null, busy: true }));
    const ask = (times: number): Promise<void> =>
      getKept<T>(path, query, staleS, own.signal).then(
        ({ value, ageS }) => {
          if (own.signal.aborted) return;
          const old = ageS >= OLD_S;
          set({ value, problem: null, busy: false, of: path, madeMs: old ? Date.now() - ageS * 1000 : 0 });
          const wait = AGAIN_S[times];
          if (old && wait) setTimeout(() => own.signal.aborted || void ask(times + 1), wait * 1000);
        },
        (problem: Error) => void (own.signal.aborted || set((known) => ({ ...known, problem, busy: false, of: path }))),
      );
    return ask(0);
  }, [question]);
  const reload = useCallback(() => load(0), [load]); // what was just changed is to be seen
  useEffect(() => {
    void load(maxStaleS);
    return () => running.current?.abort();
  }, [load]);
  return { value: state.of === path ? state.value : null, problem: state.problem, busy: state.busy, madeMs: state.of === path ? state.madeMs : 0, reload };
}

/** How many times as long as an answer took passes before it is asked for again: what is dear on a large cluster is
 * asked for more seldom. */
const PAUSE_TIMES = 50;
const PAUSE_MAX_MS = 30_000;

/** Ask again when a change concerns what is shown, at most once in `everyMs`, and more seldom where answers take long. */
export function useFresh(topics: Topic[], reload: () => Promise<unknown>, everyMs = 3_000, concerns: (changes: Live) => boolean = () => true): void {
  const due = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const last = useRef(0);
  const took = useRef(0);
  useChanges(topics, (changes) => {
    if (due.current !== undefined || !concerns(changes)) return;
    const wait = Math.max(50, last.current + Math.max(everyMs, Math.min(PAUSE_MAX_MS, PAUSE_TIMES * took.current)) - Date.now());
    due.current = setTimeout(() => {
      due.current = undefined;
      last.current = Date.now();
      void reload().finally(() => (took.current = Date.now() - last.current));
    }, wait * (0.9 + Math.random() * 0.2));
  });
  useEffect(() => () => clearTimeout(due.current), []);
}

/** What went wrong, for people: the server's words, with what to do. */
export function said(error: unknown): { title: string; hint: string; problems: { field: string; message: string }[] } {
  if (error instanceof Refused) {
    const { title, hint, problems } = error.details as unknown as { title: string; hint: string; problems: { field: string; message: string }[] };
    return { title, hint: hint ?? "", problems: problems ?? [] };
  }
  return { title: error instanceof Error ? error.message : String(error), hint: "", problems: [] };
}
