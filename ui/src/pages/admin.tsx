// What only some may do: change the rules with a preview, manage tokens, tenants and users, see the state of nodes.
import { useEffect, useState } from "preact/hooks";
import { me, post, send } from "../api/client";
import type { ConfigPlan, ConfigView, DoneAnswer, NodeList, SecretList, TokenList, TokenMade } from "../api/types.gen";
import { useGet } from "../api/use";
import { t } from "../i18n";
import { A, Card, Confirm, Copy, Empty, Field, Head, note, Problem, Shown, State, Tabs, Time } from "../parts/basics";
import { query, setQuery } from "../router";
import { Notifications } from "./notifications";
import { Quotas, Tenants } from "./tenants";
import { Users } from "./users";

export function Page() {
  const seesAll = !!me.value?.role;
  const tabs = seesAll ? ["policy", "tenants", "users", "quotas", "config", "health", "tokens", "secrets", "notifications"] : ["tokens", "secrets", "notifications"];
  const tab = query.value.get("tab") ?? tabs[0]!;
  return (
    <>
      <Head title={t("nav.admin")} />
      <Tabs label={t("nav.admin")} at={tab} onChoose={(key) => setQuery({ tab: key === tabs[0] ? "" : key, set: "", base: "", user: "" })} of={tabs.map((key) => [key, t(`admin.${key}`)])} />
      {tab === "policy" ? <Policy /> : seesAll && tab === "tenants" ? <Tenants /> : seesAll && tab === "users" ? <Users /> : seesAll && tab === "quotas" ? <Quotas /> : tab === "config" ? <Config /> : tab === "health" ? <Health /> : tab === "secrets" ? <Secrets /> : tab === "notifications" ? <Notifications /> : <Tokens />}
    </>
  );
}

/** A change of the rules: what it changes, and what it would have done on the cluster's own history, before it is made. */
function Policy() {
  const [text, setText] = useState(query.value.getAll("set").join("\n"));
  const [plan, setPlan] = useState<ConfigPlan | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [sure, setSure] = useState(false);
  const set = text.split("\n").map((one) => one.trim()).filter(Boolean);
  useEffect(() => setPlan(null), [text]);
  const preview = async (simulate: boolean) => {
    setBusy(true);
    setProblem(null);
    try {
      setPlan(await post<ConfigPlan>("/config", { set, dry_run: true, simulate }));
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  };
  if (me.value?.role !== "admin") return <Empty title={t("admin.only_admins")} hint={t("admin.only_admins_hint")}><p><A to="/whatif" class="button">{t("nav.whatif")}</A></p></Empty>;
  return (
    <Card>
      <Field label={t("admin.change")} hint={t("admin.change_hint")}><textarea rows={4} value={text} onInput={(event) => setText(event.currentTarget.value)} placeholder={"queue.research.policy=fair_share\nqueue.research.max.devices=16"} /></Field>
      <p class="tools">
        <button type="button" disabled={busy || !set.length} onClick={() => void preview(false)}>{t("admin.preview")}</button>
        <button type="button" disabled={busy || !set.length} onClick={() => void preview(true)}>{t("admin.simulate")}</button>
      </p>
      {problem ? <Problem of={problem} /> : null}
      {plan ? (
        <>
          <h3>{t("admin.would_change", { n: plan.changes.length })}</h3>
          {plan.changes.length ? <ul class="lines">{plan.changes.map((change) => <li key={change.path}><code>{change.path}</code> {change.old || "–"} → <strong>{change.new || "–"}</strong></li>)}</ul> : <p class="faint">{t("admin.no_change")}</p>}
          {plan.whatif ? <p><A to={`/whatif?id=${plan.whatif}`} class="button">{t("admin.see_simulation")}</A></p> : plan.changes.length ? <p class="faint">{t("admin.simulate_hint")}</p> : null}
          {plan.changes.length ? <button type="button" class="primary" onClick={() => setSure(true)}>{t("admin.apply")}</button> : null}
        </>
      ) : null}
      {sure && plan ? (
        <Confirm title={t("admin.apply_title")} action={t("admin.apply")} onClose={() => setSure(false)} run={async () => {
          await post<ConfigPlan>("/config", { set, base: plan.base });
          setText("");
          return t("admin.applied", { n: plan.changes.length });
        }}>
          <ul class="lines">{plan.changes.map((change) => <li key={change.path}>{change.text}</li>)}</ul>
        </Confirm>
      ) : null}
    </Card>
  );
}

function Config() {
  const config = useGet<ConfigView>("/config");
  const [sought, setSought] = useState("");
  return (
    <Shown of={config}>{(view) => {
      const lines: [string, string][] = [];
      flatten(view.config, "", lines);
      const shown = lines.filter(([path, value]) => `${path}=${value}`.toLowerCase().includes(sought.toLowerCase()));
      return (
        <Card>
          <div class="filters"><input type="search" data-search placeholder={t("admin.search_config")} aria-label={t("admin.search_config")} value={sought} onInput={(event) => setSought(event.currentTarget.value)} /><Copy text="penstock admin show" /></div>
          <table class="plain config"><tbody>{shown.slice(0, 1_000).map(([path, value]) => <tr key={path}><td><code>{path}</code></td><td>{value}</td></tr>)}</tbody></table>
        </Card>
      );
    }}</Shown>
  );
}

/** Write a configuration as paths with values; entries of lists are named by their name. */
export function flatten(value: unknown, path: string, into: [string, string][]): void {
  if (Array.isArray(value) && value.some((one) => typeof one === "object")) {
    value.forEach((one, at) => flatten(one, `${path}.${(one as { name?: string }).name ?? at}`, into));
  } else if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, one] of Object.entries(value)) flatten(one, path ? `${path}.${name}` : name, into);
  } else into.push([path, Array.isArray(value) ? value.join(", ") : String(value)]);
}

/** Nodes that are lost, closed or have ill devices, first. */
function Health() {
  const nodes = useGet<NodeList>("/nodes", { limit: 1_000, fields: "name,state,draining,drain_reason,devices,connected,shut_to" });
  return (
    <Shown of={nodes}>{(list) => {
      const ill = list.nodes.filter((node) => node.state !== "ready" || node.draining || !node.connected || node.devices.some((device) => !device.healthy));
      return (
        <Card title={t("admin.ill", { n: ill.length })}>
          {ill.length ? (
            <table class="plain"><tbody>{ill.map((node) => (
              <tr key={node.name}><td><A to={`/nodes?node=${encodeURIComponent(node.name)}`}>{node.name}</A></td><td><State of={node.draining && node.state === "ready" ? "draining" : node.state} kind="node" /></td><td>{node.drain_reason}</td><td>{t("admin.ill_devices", { n: node.devices.filter((device) => !device.healthy).length })}</td></tr>
            ))}</tbody></table>
          ) : <Empty title={t("admin.all_well", { n: list.nodes.length })} />}
        </Card>
      );
    }}</Shown>
  );
}

function Tokens() {
  const of = query.value.get("user") ?? "";
  const tokens = useGet<TokenList>("/tokens", { user: of });
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState("");
  const [made, setMade] = useState<TokenMade | null>(null);
  return (
    <Card tools={null}>
      {of ? <p class="tools">{t("token.of_user", { user: of })} <button type="button" class="small" onClick={() => setQuery({ user: "" })}>{t("token.all")}</button></p> : null}
      {me.value?.level === "admin" ? <p><button type="button" onClick={() => setMaking(true)}>{t("token.make")}</button></p> : null}
      {made ? <div class="banner"><p>{t("token.made")}</p><Copy text={made.token} /></div> : null}
      <Shown of={tokens}>{(list) => list.tokens.length ? (
        <table class="plain">
          <thead><tr><th>{t("token.id")}</th><th>{t("job.user")}</th><th>{t("token.level")}</th><th class="rank-2">{t("token.note")}</th><th class="rank-2">{t("token.created")}</th><th class="rank-1">{t("token.expires")}</th><th /></tr></thead>
          <tbody>{list.tokens.map((one) => (
            <tr key={one.id}><td><code>{one.id}</code></td><td>{one.user}{one.by !== one.user ? <span class="faint"> {t("token.by", { by: one.by })}</span> : null}</td><td>{t(`token.level_${one.level}`)}</td><td class="rank-2">{one.note}</td><td class="rank-2"><Time ms={one.created_ms} /></td><td class="rank-1">{one.expires_ms ? <Time ms={one.expires_ms} relative /> : t("token.never")}</td>
              <td><button type="button" class="small danger" onClick={() => setRevoking(one.id)}>{t("token.revoke")}</button></td></tr>
          ))}</tbody>
        </table>
      ) : <Empty title={t("token.none")} />}</Shown>
      {making ? <Make user={of || (me.value?.user ?? "")} onClose={() => setMaking(false)} onDone={(done) => { setMade(done); tokens.reload(); }} /> : null}
      {revoking ? <Confirm title={t("token.revoke_title", { id: revoking })} action={t("token.revoke")} danger onClose={() => setRevoking("")} run={async () => {
        await send("DELETE", `/tokens/${encodeURIComponent(revoking)}`);
        tokens.reload();
        return t("token.revoked");
      }}><p>{t("token.revoke_text")}</p></Confirm> : null}
    </Card>
  );
}

function Make(props: { user: string; onClose: () => void; onDone: (made: TokenMade) => void }) {
  const [user, setUser] = useState(props.user);
  const [level, setLevel] = useState("write");
  const [days, setDays] = useState("");
  const [remark, setRemark] = useState("");
  return (
    <Confirm title={t("token.make")} action={t("token.make")} onClose={props.onClose} run={async () => {
      props.onDone(await post<TokenMade>("/tokens", { user, level, note: remark, ...(days ? { days: Number(days) } : {}) }));
    }}>
      <Field label={t("job.user")}><input value={user} onInput={(event) => setUser(event.currentTarget.value)} /></Field>
      <Field label={t("token.level")}><select value={level} onChange={(event) => setLevel(event.currentTarget.value)}>{["read", "write", "admin"].map((key) => <option key={key} value={key}>{t(`token.level_${key}`)}</option>)}</select></Field>
      <Field label={t("token.days")} hint={t("token.days_hint")}><input type="number" min="0" max="3660" value={days} placeholder="90" onInput={(event) => setDays(event.currentTarget.value)} /></Field>
      <Field label={t("token.note")}><input value={remark} maxLength={200} onInput={(event) => setRemark(event.currentTarget.value)} /></Field>
    </Confirm>
  );
}

function Secrets() {
  const secrets = useGet<SecretList>("/secrets");
  const [making, setMaking] = useState(false);
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [tenant, setTenant] = useState("");
  return (
    <Card>
      <p class="faint">{t("secret.hint")}</p>
      <p><button type="button" onClick={() => setMaking(true)}>{t("secret.set")}</button></p>
      <Shown of={secrets}>{(list) => list.secrets.length ? (
        <table class="plain"><tbody>{list.secrets.map((one) => (
          <tr key={`${one.tenant}/${one.name}`}><td><code>{one.name}</code></td><td>{one.tenant || t("secret.own")}</td>
            <td><button type="button" class="small danger" onClick={() => void send("DELETE", `/secrets/${encodeURIComponent(one.name)}`, { query: { tenant: one.tenant } }).then(() => { secrets.reload(); note(t("secret.removed", { name: one.name })); }, (error: Error) => note(error.message, true))}>{t("remove")}</button></td></tr>
        ))}</tbody></table>
      ) : <Empty title={t("secret.none")} command="penstock secret set HF_TOKEN" />}</Shown>
      {making ? (
        <Confirm title={t("secret.set")} action={t("save")} onClose={() => setMaking(false)} disabled={!name || !value} run={async () => {
          await (await send("PUT", `/secrets/${encodeURIComponent(name)}`, { body: { value, tenant }, key: true })).json() as DoneAnswer;
          setValue("");
          secrets.reload();
          return t("secret.done", { name });
        }}>
          <Field label={t("job.name")}><input value={name} onInput={(event) => setName(event.currentTarget.value)} placeholder="HF_TOKEN" /></Field>
          <Field label={t("secret.value")}><input type="password" autocomplete="off" value={value} onInput={(event) => setValue(event.currentTarget.value)} /></Field>
          <Field label={t("job.tenant")} hint={t("secret.tenant_hint")}><input value={tenant} onInput={(event) => setTenant(event.currentTarget.value)} /></Field>
        </Confirm>
      ) : null}
    </Card>
  );
}
