// Tenants and the quotas of queues, as an administrator declares them: lists with what is used now, and forms.
import { useMemo, useState } from "preact/hooks";
import { administers } from "../api/client";
import type { AccountList, AccountView, ConfigView, QuotaList, QuotaRow } from "../api/types.gen";
import { useFresh, useGet } from "../api/use";
import { amount, money, number } from "../format";
import { t, word } from "../i18n";
import { A, Bar, Card, Empty, Shown } from "../parts/basics";
import { amountChanges, amountFields, Amounts, amountTexts, type Change, Declare, entries, type Entry, line, type Open, Remove, Said, typed, useEdits } from "../parts/declare";

const SHOWN_MAX = 500;

type Held = { devices: number; queues: string[] };

/** What tenants hold now: devices (thousandths) and the queues that they hold them in. */
function heldBy(quotas: QuotaList | null): Map<string, Held> {
  const held = new Map<string, Held>();
  for (const one of quotas?.holders ?? []) {
    const known = held.get(one.tenant) ?? { devices: 0, queues: [] };
    if (one.resource === "devices") known.devices += one.used;
    if (!known.queues.includes(one.queue)) known.queues.push(one.queue);
    held.set(one.tenant, known);
  }
  return held;
}

export function Tenants() {
  const config = useGet<ConfigView>("/config");
  const quotas = useGet<QuotaList>("/quotas");
  const accounts = useGet<AccountList>("/accounts", {}, 3_600);
  useFresh(["jobs"], quotas, 5_000);
  const [open, setOpen] = useState<Open | null>(null);
  const [sought, setSought] = useState("");
  const held = useMemo(() => heldBy(quotas.value), [quotas.value]);
  const limits = useMemo(() => new Map(quotas.value?.quotas.filter((row) => row.kind === "tenant" && row.resource === "devices").map((row) => [row.name, row])), [quotas.value]);
  const owned = useMemo(() => new Map(accounts.value?.accounts.map((one) => [one.tenant, one])), [accounts.value]);
  return (
    <Shown of={config}>{(view) => {
      const all = entries(view, "tenants");
      const found = all.filter((one) => `${one.name} ${one.description ?? ""}`.toLowerCase().includes(sought.toLowerCase()));
      const at = open ? all.findIndex((one) => one.name === open.name) : -1;
      const start = (name: string) => { config.reload(); setOpen({ name, what: "edit" }); }; // the form begins with what holds now
      const form = { view, at, onClose: () => setOpen(null), reload: config.reload, onRemove: () => setOpen({ name: open!.name, what: "remove" }) };
      return (
        <Card>
          <div class="filters">
            <input type="search" data-search placeholder={t("tenants.search")} aria-label={t("tenants.search")} value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
            {administers() ? <button type="button" onClick={() => start("")}>{t("tenants.add")}</button> : null}
          </div>
          <p class="faint">{t("tenants.hint")} <A to="/admin?tab=quotas" class="job-link">{t("admin.quotas")}</A></p>
          {found.length ? (
            <table class="plain rows">
              <thead><tr><th>{t("job.tenant")}</th><th>{t("tenants.use")}</th><th class="rank-1">{t("tenants.queues")}</th><th class="rank-2">{t("tenants.limits")}</th><th class="rank-1">{t("tenants.budgets")}</th><th>{t("tenants.state")}</th>{administers() ? <th><span class="hidden">{t("declare.edit")}</span></th> : null}</tr></thead>
              <tbody>{found.slice(0, SHOWN_MAX).map((one) => <Row key={one.name} of={one} held={held.get(one.name)} quota={limits.get(one.name)} account={owned.get(one.name)} list={accounts.value} onEdit={() => start(one.name)} />)}</tbody>
            </table>
          ) : <Empty title={all.length ? t("declare.nothing_found", { sought }) : t("tenants.none")} hint={all.length ? "" : t("tenants.none_hint")} command={all.length ? undefined : "penstock admin add tenant vision max.devices=16"} />}
          {found.length > SHOWN_MAX ? <p class="faint">{t("declare.more", { n: found.length - SHOWN_MAX })}</p> : null}
          {open?.what === "edit" && (open.name === "" || at >= 0) ? <Edit {...form} /> : null}
          {open?.what === "remove" && at >= 0 ? <Remove view={view} name={open.name} change={withoutTenant(view, open.name)} text={t("tenants.remove_text")} onClose={form.onClose} reload={config.reload} /> : null}
        </Card>
      );
    }}</Shown>
  );
}

function Row(props: { of: Entry; held?: Held; quota?: QuotaRow; account?: AccountView; list: AccountList | null; onEdit: () => void }) {
  const { name, description, device_hours, max } = props.of as Entry & { description?: string; device_hours?: number; max?: Record<string, unknown> };
  const { quota, held } = props;
  const others = Object.entries(max ?? {}).filter(([resource]) => resource !== "devices");
  return (
    <tr data-name={name}>
      <td><A to={`/jobs?tenant=${encodeURIComponent(name)}&live=1`}>{name}</A>{description ? <p class="faint">{description}</p> : null}</td>
      <td>
        {quota && quota.maximum !== null ? <Bar label={name} whole={Math.max(quota.maximum, quota.used, 1)} parts={[{ kind: "used", value: quota.used, label: t("queues.used") }]} /> : null}
        <span class="quiet">{quota && quota.maximum !== null ? t("tenants.use_of", { used: amount(quota.used, "devices"), max: amount(quota.maximum, "devices") }) : t("tenants.use_free", { used: amount(held?.devices ?? 0, "devices") })}</span>
      </td>
      <td class="rank-1">{held?.queues.length ? [...held.queues].sort().map((queue) => <A key={queue} to={`/jobs?tenant=${encodeURIComponent(name)}&queue=${encodeURIComponent(queue)}&live=1`} class="job-link">{queue}</A>) : <span class="faint">–</span>}</td>
      <td class="rank-2">{others.map(([resource, value]) => <div key={resource}>{resource} ≤ {String(value)}</div>)}{device_hours ? <div>{t("tenants.hours_month", { hours: number(device_hours) })}</div> : null}{!others.length && !device_hours ? <span class="faint">–</span> : null}</td>
      <td class="rank-1">{props.account?.budgets.length ? props.account.budgets.map((budget) => <div key={budget.name}>{budget.name}: {money(budget.spent, props.list!.currency, props.list!.digits)} / {money(budget.amount, props.list!.currency, props.list!.digits)}</div>) : <span class="faint">–</span>}</td>
      <td>{props.account?.held ? <strong class="worse" title={props.account.held}>{t("tenants.held")}<span class="hidden">: {props.account.held}</span></strong> : t("tenants.open")}</td>
      {administers() ? <td><button type="button" class="small" aria-label={t("declare.edit_of", { name })} onClick={props.onEdit}>{t("declare.edit")}</button></td> : null}
    </tr>
  );
}

/** Remove a tenant, and what its users have in it, in one change. */
function withoutTenant(view: ConfigView, name: string): Change {
  const set = (entries(view, "users") as (Entry & { tenants?: Record<string, string>; default_tenant?: string })[]).flatMap((user) => {
    const { [name]: role, ...others } = user.tenants ?? {};
    return [...(role ? [line(`user.${user.name}.tenants`, others)] : []), ...(user.default_tenant === name ? [line(`user.${user.name}.default_tenant`, "")] : [])];
  });
  return { remove: [`tenant.${name}`], set };
}

type Form = { view: ConfigView; at: number; onClose: () => void; reload: () => void; onRemove: () => void };

function Edit(props: Form) {
  const all = entries(props.view, "tenants");
  const known = all[props.at] as (Entry & { description?: string; device_hours?: number; max?: unknown }) | undefined;
  const base: Record<string, string> = { description: known?.description ?? "", device_hours: known?.device_hours ? String(known.device_hours) : "", ...amountTexts("max", known?.max) };
  const edits = useEdits(base);
  const name = known?.name ?? edits.value("name").trim();
  const path = `tenant.${name}`;
  const set = [
    ...(edits.changed("description") ? [line(`${path}.description`, edits.value("description"))] : []),
    ...amountChanges(path, "max", edits),
    ...(edits.changed("device_hours") ? [line(`${path}.device_hours`, typed(edits.value("device_hours")))] : []),
  ];
  const fields = ["name", "description", "device_hours", "max", ...amountFields("max", edits)];
  const change = known ? { set } : { add: [path], set: name.includes("=") ? [] : set };
  return (
    <Declare title={known ? t("tenants.edit_title", { name }) : t("tenants.add")} view={props.view} path={`tenants[${known ? props.at : all.length}].`} fields={fields} change={change} done={known ? t("declare.changed", { name }) : t("declare.added", { name })} onClose={props.onClose} reload={props.reload} onRemove={known && props.onRemove}>{(about) => (
      <>
        {known ? null : <Said label={t("job.name")} of={about("name")}>{(attributes) => <input {...attributes} required autocomplete="off" value={edits.value("name")} placeholder="vision" onInput={edits.edit("name")} />}</Said>}
        <Said label={t("declare.description")} of={about("description")} now={edits.now("description")}>{(attributes) => <textarea {...attributes} class="prose" rows={2} value={edits.value("description")} onInput={edits.edit("description")} />}</Said>
        <Amounts title={t("tenants.max")} hint={t("tenants.max_hint")} name="max" edits={edits} about={about} fields={fields} />
        <Said label={t("tenants.device_hours")} hint={t("tenants.device_hours_hint")} of={about("device_hours")} now={edits.now("device_hours")}>{(attributes) => <input {...attributes} inputMode="numeric" value={edits.value("device_hours")} placeholder="5000" onInput={edits.edit("device_hours")} />}</Said>
      </>
    )}</Declare>
  );
}

/** What each queue is guaranteed, and may hold at most. */
export function Quotas() {
  const config = useGet<ConfigView>("/config");
  const quotas = useGet<QuotaList>("/quotas");
  useFresh(["jobs"], quotas, 5_000);
  const [open, setOpen] = useState<Open | null>(null);
  const used = useMemo(() => new Map(quotas.value?.quotas.filter((row) => row.kind === "queue" && row.resource === "devices").map((row) => [row.name, row.used])), [quotas.value]);
  return (
    <Shown of={config}>{(view) => {
      const all = entries(view, "queues") as (Entry & { parent?: string; guaranteed?: Record<string, unknown>; max?: Record<string, unknown> })[];
      const at = open ? all.findIndex((one) => one.name === open.name) : -1;
      const start = (name: string) => { config.reload(); setOpen({ name, what: "edit" }); }; // the form begins with what holds now
      const form = { view, at, onClose: () => setOpen(null), reload: config.reload, onRemove: () => setOpen({ name: open!.name, what: "remove" }) };
      return (
        <Card>
          <div class="filters">{administers() ? <button type="button" onClick={() => start("")}>{t("quotas.add")}</button> : null}<A to="/queues" class="button">{t("nav.queues")}</A></div>
          {all.length ? (
            <table class="plain rows">
              <thead><tr><th>{t("job.queue")}</th><th class="rank-1">{t("quotas.parent")}</th><th class="number">{t("tenants.use")}</th><th>{t("queues.guaranteed")}</th><th>{t("queues.maximum")}</th>{administers() ? <th><span class="hidden">{t("declare.edit")}</span></th> : null}</tr></thead>
              <tbody>{all.slice(0, SHOWN_MAX).map((one) => (
                <tr key={one.name} data-name={one.name}>
                  <td><A to={`/jobs?queue=${encodeURIComponent(one.name)}&live=1`}>{one.name}</A></td><td class="rank-1">{one.parent ?? <span class="faint">–</span>}</td><td class="number">{amount(used.get(one.name) ?? 0, "devices")}</td>
                  <td><Lines of={one.guaranteed} /></td><td><Lines of={one.max} /></td>
                  {administers() ? <td><button type="button" class="small" aria-label={t("declare.edit_of", { name: one.name })} onClick={() => start(one.name)}>{t("declare.edit")}</button></td> : null}
                </tr>
              ))}</tbody>
            </table>
          ) : <Empty title={t("queues.none")} hint={t("queues.none_hint")} command="penstock admin add queue research guaranteed.devices=8" />}
          {open?.what === "edit" && (open.name === "" || at >= 0) ? <EditQueue {...form} /> : null}
          {open?.what === "remove" && at >= 0 ? <Remove view={view} name={open.name} change={{ remove: [`queue.${open.name}`], set: [] }} text={t("quotas.remove_text")} onClose={form.onClose} reload={config.reload} /> : null}
        </Card>
      );
    }}</Shown>
  );
}

function Lines(props: { of?: Record<string, unknown> }) {
  const all = Object.entries(props.of ?? {});
  return all.length ? <>{all.map(([resource, value]) => <div key={resource}>{word("resource", resource)} {String(value)}</div>)}</> : <span class="faint">–</span>;
}

function EditQueue(props: Form) {
  const all = entries(props.view, "queues");
  const known = all[props.at] as (Entry & { parent?: string; guaranteed?: unknown; max?: unknown }) | undefined;
  const edits = useEdits({ parent: known?.parent ?? "", ...amountTexts("guaranteed", known?.guaranteed), ...amountTexts("max", known?.max) });
  const name = known?.name ?? edits.value("name").trim();
  const path = `queue.${name}`;
  const set = [...(edits.changed("parent") ? [line(`${path}.parent`, edits.value("parent"))] : []), ...amountChanges(path, "guaranteed", edits), ...amountChanges(path, "max", edits)];
  const fields = ["name", "parent", "guaranteed", "max", ...amountFields("guaranteed", edits), ...amountFields("max", edits)];
  const change = known ? { set } : { add: [path], set: name.includes("=") ? [] : set };
  return (
    <Declare title={known ? t("quotas.edit_title", { name }) : t("quotas.add")} view={props.view} path={`queues[${known ? props.at : all.length}].`} fields={fields} change={change} done={known ? t("declare.changed", { name }) : t("declare.added", { name })} onClose={props.onClose} reload={props.reload} onRemove={known && props.onRemove}>{(about) => (
      <>
        {known ? null : (
          <>
            <Said label={t("job.name")} of={about("name")}>{(attributes) => <input {...attributes} required autocomplete="off" value={edits.value("name")} placeholder="research" onInput={edits.edit("name")} />}</Said>
            <Said label={t("quotas.parent")} of={about("parent")}>{(attributes) => <select {...attributes} value={edits.value("parent")} onChange={edits.edit("parent")}><option value="">{t("none")}</option>{all.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}</select>}</Said>
          </>
        )}
        <Amounts title={t("queues.guaranteed")} hint={t("quotas.guaranteed_hint")} name="guaranteed" edits={edits} about={about} fields={fields} />
        <Amounts title={t("queues.maximum")} hint={t("quotas.max_hint")} name="max" edits={edits} about={about} fields={fields} />
      </>
    )}</Declare>
  );
}
