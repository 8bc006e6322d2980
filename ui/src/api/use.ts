// Answers of the API as state of a component: asked for when it is shown, and again when its question changes.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { getKept, lastWriteMs, Refused, type Query } from "./client";
import { type Live, type Topic, useChanges } from "./live";

export type Loaded<T> = {
  /** The last answer; null before the first one. */
  value: T | null;
  problem: Error | null;
  busy: boolean;
  /** When the value was worked out (ms), where that is a while ago; else 0. */
  madeMs: number;
  /** Ask again: what was just changed is to be seen. */
  reload: () => Promise<void>;
  /** Ask again for what others have changed; returns whether the answer may be from before that. */
  refresh: () => Promise<boolean>;
  question: string;
};

/** How old (s) an answer may be that follows a change of others: viewers who see the same share it. */
const SHARED_S = 1;
/** This long after a change of the viewer's own, and after an exact answer, only exact ones come: none is from before it. */
const EXACT_MS = 2_000;

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
  const exactMs = useRef(0);
  const load = useCallback((staleS: number): Promise<boolean> => {
    running.current?.abort();
    if (!path) return Promise.resolve(false);
    const own = (running.current = new AbortController());
    set((known) => ({ ...known, value: known.of === path ? known.value : null, busy: true }));
    const ask = (times: number): Promise<boolean> =>
      getKept<T>(path, query, staleS, own.signal).then(
        ({ value, ageS, stale }) => {
          if (own.signal.aborted) return false;
          if (!stale) exactMs.current = Date.now();
          const old = ageS >= OLD_S;
          set({ value, problem: null, busy: false, of: path, madeMs: old ? Date.now() - ageS * 1000 : 0 });
          const wait = AGAIN_S[times];
          if (old && wait) setTimeout(() => own.signal.aborted || void ask(times + 1), wait * 1000);
          return stale;
        },
        (problem: Error) => {
          if (!own.signal.aborted) set((known) => ({ ...known, problem, busy: false, of: path }));
          return false;
        },
      );
    return ask(0);
  }, [question]);
  const reload = useCallback(async () => void (await load(0)), [load]);
  const refresh = useCallback(() => load(Date.now() - Math.max(lastWriteMs(), exactMs.current) < EXACT_MS ? 0 : SHARED_S), [load]);
  useEffect(() => {
    void load(maxStaleS);
    return () => running.current?.abort();
  }, [load]);
  return { value: state.of === path ? state.value : null, problem: state.problem, busy: state.busy, madeMs: state.of === path ? state.madeMs : 0, reload, refresh, question };
}

/** How many times as long as an answer took passes before it is asked for again: what is dear on a large cluster is
 * asked for more seldom. */
const PAUSE_TIMES = 50;
const PAUSE_MAX_MS = 30_000;

/** Pages that show the same ask within this time of each other, so that they share an answer. */
const SPREAD_MS = 600;

/** Ask again when a change concerns what is shown: at once after a quiet while, else at most once in `everyMs`, at the
 * same moments as other viewers, and more seldom where answers take long. */
export function useFresh(topics: Topic[], of: Loaded<unknown> | Loaded<unknown>[], everyMs = 3_000, concerns: (changes: Live) => boolean = () => true): void {
  const shown = useRef<Loaded<unknown>[]>([]);
  shown.current = Array.isArray(of) ? of : [of];
  const due = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const last = useRef(0);
  const took = useRef(0);
  const left = useRef(false);
  const wait = () => {
    const pause = Math.max(everyMs, Math.min(PAUSE_MAX_MS, PAUSE_TIMES * took.current));
    const own = Math.random() * SPREAD_MS;
    if (Date.now() >= last.current + pause) return 50 + own / 4;
    const phase = hash(shown.current[0]?.question ?? "") % everyMs;
    const slot = Math.ceil((last.current + pause - everyMs / 4 - phase) / everyMs) * everyMs + phase;
    return Math.max(50, slot + own - Date.now());
  };
  const plan = () => {
    if (due.current === undefined && !left.current) due.current = setTimeout(ask, wait());
  };
  const ask = async () => {
    due.current = undefined;
    last.current = Date.now();
    const stale = await Promise.all(shown.current.map((one) => one.refresh()));
    took.current = Date.now() - last.current;
    if (stale.includes(true)) plan(); // the change that this follows may not be in it
  };
  useChanges(topics, (changes) => concerns(changes) && plan());
  useEffect(() => {
    left.current = false;
    return () => {
      left.current = true;
      clearTimeout(due.current);
    };
  }, []);
}

function hash(text: string): number {
  let found = 0;
  for (let at = 0; at < text.length; at++) found = (found * 31 + text.charCodeAt(at)) >>> 0;
  return found;
}

/** What went wrong, for people: the server's words, with what to do. */
export function said(error: unknown): { title: string; hint: string; problems: { field: string; message: string }[] } {
  if (error instanceof Refused) {
    const { title, hint, problems } = error.details as unknown as { title: string; hint: string; problems: { field: string; message: string }[] };
    return { title, hint: hint ?? "", problems: problems ?? [] };
  }
  return { title: error instanceof Error ? error.message : String(error), hint: "", problems: [] };
}
