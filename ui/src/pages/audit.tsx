// The event log: everything that happened, newest first, by kind and job; each decision can be made again from it.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api/client";
import { useChanges } from "../api/live";
import type { ClusterView, Record as LogRecord } from "../api/types.gen";
import { t, word } from "../i18n";
import { A, Card, Copy, Empty, Head, Problem, Time } from "../parts/basics";
import { query, setQuery } from "../router";

const PAGE = 300;

export function Page() {
  const [records, setRecords] = useState<LogRecord[]>([]);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(true);
  const [begin, setBegin] = useState(0);
  const [more, setMore] = useState(0);
  const [open, setOpen] = useState(0);
  const sought = query.value.get("search") ?? "";
  const load = async (before: number, keep: LogRecord[]) => {
    setBusy(true);
    try {
      const after = Math.max(0, before - PAGE - 1);
      const found = await get<LogRecord[]>("/events", { after, limit: PAGE });
      const own = found.filter((record) => record.seq < before).reverse();
      setRecords([...keep, ...own]);
      setBegin(after + 1);
      setProblem(null);
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  };
  const newest = async () => {
    const cluster = await get<ClusterView>("/cluster");
    setMore(0);
    await load(cluster.seq + 1, []);
  };
  useEffect(() => void newest().catch(setProblem), []);
  useChanges(["counts"], (changes) => {
    const last = records[0]?.seq ?? 0;
    if (changes.seq && changes.seq > last) setMore(changes.seq - last);
  });
  const matches = (record: LogRecord) => !sought || JSON.stringify(record.event).toLowerCase().includes(sought.toLowerCase());
  const shown = records.filter(matches);
  return (
    <>
      <Head title={t("nav.audit")} sub={t("audit.lead")}><Copy text="penstock audit" /></Head>
      <div class="filters" role="search">
        <input type="search" data-search placeholder={t("audit.search")} aria-label={t("audit.search")} value={sought} onInput={(event) => setQuery({ search: event.currentTarget.value })} />
      </div>
      {more ? <button type="button" class="fresh" onClick={() => void newest()}>{t("audit.newer", { n: more })}</button> : null}
      {problem ? <Problem of={problem} /> : null}
      <Card>
        {shown.length ? (
          <ol class="story">
            {shown.map((record) => {
              const { type, job_id: job, node, ...rest } = record.event as unknown as { type: string; job_id?: number; node?: string } & { [name: string]: unknown };
              return (
                <li key={record.seq}>
                  <span class="faint number">{record.seq}</span> <Time ms={record.time_ms} /> <button type="button" class="link" aria-expanded={open === record.seq} onClick={() => setOpen(open === record.seq ? 0 : record.seq)}>{word("event", type)}</button>{" "}
                  {job ? <A to={`/jobs/${job}?tab=record`} class="job-link">{`#${job}`}</A> : null}{node ? <A to={`/nodes?node=${encodeURIComponent(node)}`}>{node}</A> : null}
                  {open === record.seq ? <pre class="json">{JSON.stringify(rest, null, 1)}</pre> : null}
                </li>
              );
            })}
          </ol>
        ) : busy ? <p class="loading" role="status">{t("loading")}</p> : <Empty title={t("audit.none")} />}
        {begin > 1 && !busy ? <button type="button" onClick={() => void load(begin, records)}>{t("audit.older")}</button> : null}
      </Card>
    </>
  );
}
