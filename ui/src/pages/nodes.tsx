// The cluster: every device on a map, or nodes as a list; one node with its devices, links and jobs; closing and opening.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, me, post } from "../api/client";
import { useChanges } from "../api/live";
import type { DeviceView, NodeList, NodeView, NotPromisedView } from "../api/types.gen";
import { bytes, number } from "../format";
import { t, word } from "../i18n";
import { A, Bar, Card, Confirm, Empty, Field, Head, Problem, State, Tabs } from "../parts/basics";
import { ChangeDevice, WhyClosed } from "../parts/closing";
import { DeviceMap, isMeasured, kindOf, MEASURED, type Tint } from "../parts/devicemap";
import { Figures, Scale, useReported } from "../parts/figures";
import { type Column, Table } from "../parts/table";
import { query, setQuery } from "../router";

const PAGE = 500;
const MOST = 5_000;
const FIELDS = "name,state,draining,drain_reason,pool,rack,switch,zone,devices,connected,cpu_milli,cpu_held_milli,memory_bytes,memory_held_bytes,jobs,labels,links,virtual,shut_to,engine,not_promised";

export function Page() {
  const q = query.value;
  const [tab, tint] = [q.get("tab") ?? "map", (q.get("by") ?? "use") as Tint];
  const filters = { search: q.get("search") ?? "", pool: q.get("pool") ?? "", model: q.get("model") ?? "", rack: q.get("rack") ?? "", state: q.get("state") ?? "" };
  const list = useNodes(filters);
  const chosen = q.get("node") ?? "";
  const node = list.nodes.find((one) => one.name === chosen);
  const reported = useReported(tab === "map" && isMeasured(tint));
  const highlight = Number(q.get("job") ?? 0);
  const [text, setText] = useState(filters.search);
  useEffect(() => {
    if (text === filters.search) return;
    const timer = setTimeout(() => setQuery({ search: text }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const brought = list.nodes.some((one) => one.engine);
  const columns = useMemo(() => makeColumns(brought), [t("job.name"), brought]);
  const choose = (name: string) => setQuery({ node: name });
  return (
    <>
      <Head title={t("nav.nodes")} sub={t("nodes.count", { n: list.nodes.length })} />
      <div class="filters" role="search">
        <input type="search" data-search placeholder={t("nodes.search")} aria-label={t("nodes.search")} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        {(["pool", "model", "rack", "state"] as const).map((name) => filters[name] ? <button key={name} type="button" class="chip on" onClick={() => setQuery({ [name]: "" })} title={t("jobs.drop_filter")}>{t(`nodes.${name}`)}: {filters[name]} <span aria-hidden="true">×</span></button> : null)}
        {tab === "map" ? (
          <label>{t("map.by")} <select value={tint} onChange={(event) => setQuery({ by: event.currentTarget.value })}>{["use", "job", "health", ...MEASURED].map((key) => <option key={key} value={key}>{t(`map.by_${key}`)}</option>)}</select></label>
        ) : null}
      </div>
      <Tabs label={t("nodes.views")} at={tab} onChoose={(key) => setQuery({ tab: key === "map" ? "" : key })} of={[["map", t("nodes.map")], ["list", t("nodes.list")]]} />
      {list.problem ? <Problem of={list.problem} retry={list.reload} /> : null}
      {list.nodes.length ? (
        <div class={node ? "with-aside" : ""}>
          {tab === "map" ? (
            <Card>{isMeasured(tint) ? <Scale by={tint} /> : <Legend />}<DeviceMap nodes={list.nodes} by={tint} chosen={chosen} onChoose={choose} highlight={highlight} reported={reported} /></Card>
          ) : <Table rows={list.nodes} columns={columns} id={(one) => one.name} label={t("nav.nodes")} card={NodeCard} />}
          {node ? <Detail of={node} onClose={() => choose("")} reload={list.reload} /> : null}
        </div>
      ) : list.busy ? <p class="loading" role="status">{t("loading")}</p> : <Empty title={t("nodes.none")} hint={t("overview.no_devices_hint")} command="penstock up --cluster cluster.yaml" />}
    </>
  );
}

function Legend() {
  return (
    <p class="legend">
      {["used", "free", "closed", "unhealthy"].map((kind) => <span key={kind}><span class={`swatch piece-${kind}`} aria-hidden="true" /> {t(`device.${kind}`)}</span>)}
    </p>
  );
}

type Nodes = { nodes: NodeView[]; busy: boolean; problem: Error | null; reload: () => void };

function useNodes(filters: Record<string, string>): Nodes {
  const [state, set] = useState<{ nodes: NodeView[]; busy: boolean; problem: Error | null }>({ nodes: [], busy: true, problem: null });
  const running = useRef<AbortController | null>(null);
  const asked = JSON.stringify(filters);
  const load = async () => {
    running.current?.abort();
    const own = (running.current = new AbortController());
    try {
      let cursor = "";
      let all: NodeView[] = [];
      do {
        const page: NodeList = await get<NodeList>("/nodes", { ...filters, limit: PAGE, fields: FIELDS, cursor }, own.signal);
        all = [...all, ...page.nodes];
        cursor = page.next_cursor;
        set({ nodes: all, busy: false, problem: null });
      } while (cursor && all.length < MOST);
    } catch (problem) {
      if (!own.signal.aborted) set((known) => ({ ...known, busy: false, problem: problem as Error }));
    }
  };
  useEffect(() => {
    void load();
    return () => running.current?.abort();
  }, [asked]);
  useChanges(["nodes"], (changes) => {
    if (changes.nodes_anew) return void load();
    const by = new Map((changes.nodes ?? []).map((node) => [node.name, node]));
    const gone = new Set(changes.nodes_gone ?? []);
    if (!by.size && !gone.size) return;
    set((known) => ({ ...known, nodes: known.nodes.filter((node) => !gone.has(node.name)).map((node) => by.get(node.name) ?? node) }));
  });
  return { ...state, reload: () => void load() };
}

function counted(node: NodeView): Record<string, number> {
  const found: Record<string, number> = { used: 0, free: 0, closed: 0, unhealthy: 0 };
  for (const device of node.devices) found[kindOf(node, device)] = (found[kindOf(node, device)] ?? 0) + 1;
  return found;
}

function DevicesBar(props: { of: NodeView }) {
  const counts = counted(props.of);
  return <Bar label={props.of.name} whole={props.of.devices.length} parts={["used", "unhealthy", "closed", "free"].map((kind) => ({ kind, value: counts[kind] ?? 0, label: t(`device.${kind}`) }))} />;
}

function stateOf(node: NodeView): string {
  return node.draining && node.state === "ready" ? "draining" : node.state;
}

function makeColumns(brought: boolean): Column<NodeView>[] {
  const found: Column<NodeView>[] = [
    { key: "name", title: t("job.name"), wide: true, cell: (node) => <A to={`/nodes?tab=list&node=${encodeURIComponent(node.name)}`}>{node.name}</A> },
    { key: "state", title: t("job.state"), cell: (node) => <span title={node.drain_reason}><State of={stateOf(node)} kind="node" /></span> },
    { key: "devices", title: t("job.devices"), number: true, cell: (node) => `${counted(node).used} / ${node.devices.length}` },
    { key: "bar", title: "", cell: (node) => <DevicesBar of={node} />, rank: 1 },
    { key: "model", title: t("device.model"), rank: 2, cell: (node) => [...new Set(node.devices.map((device) => device.model))].join(", ") },
    { key: "pool", title: t("nodes.pool"), rank: 3, cell: (node) => node.pool },
    { key: "rack", title: t("nodes.rack"), rank: 4, cell: (node) => node.rack },
    { key: "cpu", title: "CPU", number: true, rank: 3, cell: (node) => `${number(node.cpu_held_milli / 1000)} / ${number(node.cpu_milli / 1000)}` },
    { key: "memory", title: t("nodes.memory"), number: true, rank: 4, cell: (node) => `${bytes(node.memory_held_bytes)} / ${bytes(node.memory_bytes)}` },
  ];
  if (brought) found.push({ key: "engine", title: t("nodes.engine"), rank: 5, cell: (node) => <span title={node.not_promised.map(promised).join(", ")}>{node.engine ? word("engine", node.engine) : null}</span> });
  return found;
}

function promised(one: NotPromisedView): string {
  return word("promise", one.name);
}

function NodeCard(node: NodeView) {
  return (
    <div class="job-card">
      <div><A to={`/nodes?tab=list&node=${encodeURIComponent(node.name)}`}>{node.name}</A> <State of={stateOf(node)} kind="node" /></div>
      <div><DevicesBar of={node} /></div>
      <div class="faint">{counted(node).used} / {node.devices.length} {[...new Set(node.devices.map((device) => device.model))].join(", ")}</div>
    </div>
  );
}

function Detail(props: { of: NodeView; onClose: () => void; reload: () => void }) {
  const { of } = props;
  const [draining, setDraining] = useState(false);
  const [changing, setChanging] = useState<DeviceView | null>(null);
  const operates = (me.value?.role === "admin" || me.value?.role === "operator") && me.value.level !== "read";
  return (
    <Card title={of.name} class="aside" tools={<button type="button" class="small" onClick={props.onClose}>{t("close")}</button>}>
      <p><State of={stateOf(of)} kind="node" />{of.connected || of.state === "lost" ? null : <span class="faint"> {t("nodes.not_connected")}</span>}</p>
      {of.drain_reason ? <p class="faint">{of.drain_reason}</p> : null}
      <dl class="facts">
        <dt>{t("nodes.pool")}</dt><dd>{of.pool}</dd>
        {of.engine ? <><dt>{t("nodes.engine")}</dt><dd>{word("engine", of.engine)}</dd></> : null}
        {(["zone", "rack", "switch"] as const).map((name) => of[name] ? [<dt key={name}>{t(`nodes.${name}`)}</dt>, <dd key={`${name}v`}>{of[name]}</dd>] : null)}
        <dt>CPU</dt><dd>{number(of.cpu_held_milli / 1000)} / {number(of.cpu_milli / 1000)}</dd>
        <dt>{t("nodes.memory")}</dt><dd>{bytes(of.memory_held_bytes)} / {bytes(of.memory_bytes)}</dd>
        {Object.keys(of.labels).length ? <><dt>{t("nodes.labels")}</dt><dd>{Object.entries(of.labels).map(([key, value]) => <code key={key}>{`${key}=${value}`}</code>)}</dd></> : null}
        {Object.entries(of.links).map(([kind, groups]) => [<dt key={kind}>{kind}</dt>, <dd key={`${kind}v`}>{groups.map((group) => group.join("–")).join(", ")}</dd>])}
      </dl>
      {of.not_promised.length ? (
        <>
          <h3>{t("nodes.not_promised")}</h3>
          <ul>{of.not_promised.map((one) => <li key={one.name}>{promised(one)} <span class="faint" lang="en">{one.text}</span></li>)}</ul>
        </>
      ) : null}
      <h3>{t("job.devices")}</h3>
      <table class="plain">
        <tbody>
          {of.devices.map((device) => (
            <tr key={device.index}>
              <td class="number">{device.index}</td>
              <td>{device.model} <span class="faint">{device.simulated ? `${t("device.simulated")} ` : ""}{device.isolation && device.isolation !== "none" ? <span title={t("device.isolation")}>{word("isolation", device.isolation)}</span> : null}</span></td>
              <td><State of={device.closed ? "closed" : kindOf(of, device)} kind="device_state" /> <WhyClosed of={device} /></td>
              <td>{device.job !== null ? <A to={`/jobs/${device.job}`}>{`#${device.job}`}</A> : device.held ? <span class="faint">{t("nodes.others")}</span> : null}</td>
              {operates ? <td><button type="button" class="small" aria-label={t(device.closed ? "device.open_title" : "device.close_title", { name: `${of.name}/${device.index}` })} onClick={() => setChanging(device)}>{t(device.closed ? "device.open" : "device.close")}</button></td> : null}
            </tr>
          ))}
        </tbody>
      </table>
      <Figures key={of.name} node={of.name} />
      {of.jobs.length ? <p>{t("nodes.jobs")} {of.jobs.map((id) => <A key={id} to={`/jobs/${id}`} class="job-link">{`#${id}`}</A>)}</p> : null}
      {operates ? <p><button type="button" class={of.draining ? "" : "danger"} onClick={() => setDraining(true)}>{t(of.draining ? "nodes.open" : "nodes.drain")}</button></p> : null}
      {changing ? <ChangeDevice node={of.name} of={changing} onClose={() => setChanging(null)} onDone={props.reload} /> : null}
      {draining ? <Drain of={of} onClose={() => setDraining(false)} onDone={props.reload} /> : null}
    </Card>
  );
}

function Drain(props: { of: NodeView; onClose: () => void; onDone: () => void }) {
  const { of } = props;
  const [reason, setReason] = useState("");
  const [evict, setEvict] = useState(false);
  const run = async () => {
    await post(`/nodes/${encodeURIComponent(of.name)}/drain`, undefined, of.draining ? { on: "false" } : { on: "true", evict: evict ? "true" : "", reason });
    props.onDone();
    return t(of.draining ? "nodes.opened" : "nodes.drained", { node: of.name });
  };
  return (
    <Confirm title={t(of.draining ? "nodes.open_title" : "nodes.drain_title", { node: of.name })} action={t(of.draining ? "nodes.open" : "nodes.drain")} danger={!of.draining} onClose={props.onClose} run={run}>
      {of.draining ? <p>{t("nodes.open_text")}</p> : (
        <>
          <p>{t("nodes.drain_text", { n: of.jobs.length })}</p>
          <Field label={t("nodes.reason")}><input value={reason} maxLength={1000} onInput={(event) => setReason(event.currentTarget.value)} /></Field>
          <label class="check"><input type="checkbox" checked={evict} onChange={(event) => setEvict(event.currentTarget.checked)} /> {t("nodes.evict", { pool: word("pool", of.pool) })}</label>
        </>
      )}
    </Confirm>
  );
}
