// Answers of the API as state of a component: asked for when it is shown, and again when its question changes.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, Refused, type Query } from "./client";
import { type Live, type Topic, useChanges } from "./live";

export type Loaded<T> = {
  /** The last answer; null before the first one. */
  value: T | null;
  problem: Error | null;
  busy: boolean;
  reload: () => void;
};

/** Ask for `path`; an empty path asks for nothing. Answers of former questions are dropped. */
export function useGet<T>(path: string, query: Query = {}): Loaded<T> {
  const [state, set] = useState<{ value: T | null; problem: Error | null; busy: boolean; of: string }>({
    value: null, problem: null, busy: true, of: "",
  });
  const question = path + JSON.stringify(query);
  const running = useRef<AbortController | null>(null);
  const reload = useCallback(() => {
    running.current?.abort();
    if (!path) return;
    const own = (running.current = new AbortController());
    set((known) => ({ ...known, value: known.of === path ? known.value : null, busy: true }));
    get<T>(path, query, own.signal).then(
      (value) => !own.signal.aborted && set({ value, problem: null, busy: false, of: path }),
      (problem: Error) => !own.signal.aborted && set((known) => ({ ...known, problem, busy: false, of: path })),
    );
  }, [question]);
  useEffect(() => {
    reload();
    return () => running.current?.abort();
  }, [reload]);
  return { value: state.of === path ? state.value : null, problem: state.problem, busy: state.busy, reload };
}

/** Ask again when a change concerns what is shown, at most once in `everyMs`. */
export function useFresh(topics: Topic[], reload: () => void, everyMs = 3_000, concerns: (changes: Live) => boolean = () => true): void {
  const due = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const last = useRef(0);
  useChanges(topics, (changes) => {
    if (due.current !== undefined || !concerns(changes)) return;
    const wait = Math.max(50, last.current + everyMs - Date.now());
    due.current = setTimeout(() => {
      due.current = undefined;
      last.current = Date.now();
      reload();
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
