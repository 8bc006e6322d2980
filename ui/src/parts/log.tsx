// One replica's output: the last lines first, older ones as they are scrolled to, new ones as they come; searched in
// the server. Lines are text nodes: nothing in them is ever markup.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { apiUrl, get, send } from "../api/client";
import type { LogMatches, OutputList } from "../api/types.gen";
import { bytes } from "../format";
import { t } from "../i18n";
import { Empty, Problem } from "./basics";
import { pieces, plain } from "./ansi";

const LINES = 500;
const MOST = 5_000;
const POLL_MS = 1_500;
type Line = { offset: number; text: string };

export function Log(props: { job: number; live: boolean }) {
  const [outputs, setOutputs] = useState<OutputList["outputs"]>([]);
  const [at, setAt] = useState<{ attempt: number; rank: number } | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  useEffect(() => {
    get<OutputList>(`/jobs/${props.job}/outputs`).then((list) => {
      setOutputs(list.outputs);
      const last = Math.max(0, ...list.outputs.map((one) => one.attempt));
      setAt((known) => known ?? list.outputs.find((one) => one.attempt === last) ?? null);
    }, setProblem);
  }, [props.job, props.live]);
  if (problem) return <Problem of={problem} />;
  if (!at) return <Empty title={t("log.none")} hint={t("log.none_hint")} />;
  const attempts = [...new Set(outputs.map((one) => one.attempt))].sort((a, b) => b - a);
  const ranks = outputs.filter((one) => one.attempt === at.attempt);
  return (
    <div class="log">
      <div class="log-head">
        <label>{t("job.attempt")} <select value={at.attempt} onChange={(event) => setAt({ attempt: Number(event.currentTarget.value), rank: 0 })}>{attempts.map((one) => <option key={one} value={one}>{one}</option>)}</select></label>
        <label>{t("job.rank")} <select value={at.rank} onChange={(event) => setAt({ ...at, rank: Number(event.currentTarget.value) })}>{ranks.map((one) => <option key={one.rank} value={one.rank}>{one.rank} ({bytes(one.size_bytes)})</option>)}</select></label>
      </div>
      <Output key={`${at.attempt}/${at.rank}`} job={props.job} attempt={at.attempt} rank={at.rank} live={props.live} />
    </div>
  );
}

function Output(props: { job: number; attempt: number; rank: number; live: boolean }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [follows, setFollows] = useState(props.live);
  const [sought, setSought] = useState("");
  const [matches, setMatches] = useState<LogMatches | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const box = useRef<HTMLDivElement>(null);
  const end = useRef(0);
  const decoder = useRef(new TextDecoder());
  const where = { attempt: props.attempt, rank: props.rank };
  const path = `/jobs/${props.job}/logs`;

  const read = async (query: Record<string, number>): Promise<{ begin: number; data: Uint8Array }> => {
    const answer = await send("GET", path, { query: { ...where, ...query } });
    return { begin: Number(answer.headers.get("X-Penstock-Offset") ?? 0), data: new Uint8Array(await answer.arrayBuffer()) };
  };
  useEffect(() => {
    read({ lines: LINES }).then(({ begin, data }) => {
      end.current = begin + data.length;
      setLines(split(data, begin));
    }, setProblem);
  }, []);
  useEffect(() => {
    if (!follows || !props.live) return;
    const timer = setInterval(async () => {
      if (document.hidden) return;
      const { begin, data } = await read({ offset: end.current }).catch(() => ({ begin: 0, data: new Uint8Array() }));
      if (!data.length) return;
      end.current = begin + data.length;
      const added = split(data, begin);
      setLines((known) => {
        const last = known.at(-1);
        const joined = last && !last.text.endsWith("\n") && added[0] ? [...known.slice(0, -1), { offset: last.offset, text: last.text + added[0].text }, ...added.slice(1)] : [...known, ...added];
        return joined.slice(-MOST);
      });
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [follows, props.live]);
  useLayoutEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follows]);
  const older = async () => {
    const first = lines[0];
    if (!first || first.offset === 0) return;
    const { begin, data } = await read({ lines: LINES, before: first.offset });
    const height = box.current?.scrollHeight ?? 0;
    setFollows(false);
    setLines((known) => [...split(data, begin), ...known].slice(0, MOST));
    requestAnimationFrame(() => box.current && (box.current.scrollTop += box.current.scrollHeight - height));
  };
  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    if (follows && element.scrollHeight - element.scrollTop - element.clientHeight > 80) setFollows(false);
    if (element.scrollTop < 40) void older();
  };
  const seek = async (event: Event) => {
    event.preventDefault();
    if (!sought) return setMatches(null);
    setProblem(null);
    await get<LogMatches>(`${path}/search`, { ...where, q: sought, ignore_case: true, limit: 200 }).then(setMatches, setProblem);
  };
  const download = async () => {
    const answer = await fetch(apiUrl(path, { ...where, offset: 0 }), { headers: { Authorization: `Bearer ${(await import("../api/client")).token.value}` } });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `job-${props.job}-${props.attempt}-${props.rank}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return (
    <>
      <form class="log-tools" onSubmit={seek} role="search">
        <input type="search" data-search value={sought} placeholder={t("log.search")} aria-label={t("log.search")} onInput={(event) => setSought(event.currentTarget.value)} />
        <button type="submit">{t("log.find")}</button>
        {props.live ? <label class="check"><input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> {t("log.follow")}</label> : null}
        <button type="button" onClick={() => void download()}>{t("log.download")}</button>
      </form>
      {problem ? <Problem of={problem} /> : null}
      {matches ? <Matches of={matches} onClose={() => setMatches(null)} /> : null}
      <div class="log-lines" ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-live="off" aria-label={t("log.label")}>
        {lines[0] && lines[0].offset > 0 ? <button type="button" class="small" onClick={() => void older()}>{t("log.older")}</button> : null}
        <Rows lines={lines} />
        {lines.length === 0 && !problem ? <p class="faint">{t("log.empty")}</p> : null}
      </div>
    </>
  );

  function split(data: Uint8Array, begin: number): Line[] {
    const found: Line[] = [];
    let from = 0;
    for (let i = 0; i <= data.length; i += 1) {
      if (i === data.length ? from < i : data[i] === 10) {
        const stop = i === data.length ? i : i + 1;
        found.push({ offset: begin + from, text: decoder.current.decode(data.subarray(from, stop)) });
        from = stop;
      }
    }
    return found;
  }
}

function Rows(props: { lines: Line[] }) {
  return (
    <pre>
      {props.lines.map((line) => (
        <div key={line.offset} class="log-line">{pieces(lastOf(line.text)).pieces.map((piece, at) => (piece.style ? <span key={at} class={piece.style}>{piece.text}</span> : piece.text))}{"\n"}</div>
      ))}
    </pre>
  );
}

/** What a terminal shows of a line with carriage returns: progress bars write over themselves. */
function lastOf(text: string): string {
  const line = text.replace(/\r?\n$/, "");
  return line.includes("\r") ? line.slice(line.lastIndexOf("\r", line.length - 2) + 1) : line;
}

function Matches(props: { of: LogMatches; onClose: () => void }) {
  return (
    <section class="matches" aria-label={t("log.matches")}>
      <header>{t("log.matches_count", { n: props.of.lines.length })} <button type="button" class="small" onClick={props.onClose}>{t("close")}</button></header>
      <ol>
        {props.of.lines.map((line) => (
          <li key={line.offset}><code>{plain(line.text.slice(0, line.begin))}<mark>{plain(line.text.slice(line.begin, line.end))}</mark>{plain(line.text.slice(line.end))}</code></li>
        ))}
      </ol>
      {props.of.next_before ? <p class="faint">{t("log.matches_more", { searched: bytes(props.of.searched_bytes) })}</p> : null}
    </section>
  );
}
