// Users and their roles, as an administrator declares them: a list, forms, and access given and taken.
import { useMemo, useState } from "preact/hooks";
import { administers, me } from "../api/client";
import type { ConfigView, TokenList } from "../api/types.gen";
import { useGet } from "../api/use";
import { t } from "../i18n";
import { A, Card, Empty, Shown } from "../parts/basics";
import { Declare, entries, type Entry, line, mapping, type Open, Remove, Said, useEdits } from "../parts/declare";

const SHOWN_MAX = 500;
const CLUSTER_ROLES = ["viewer", "operator", "admin"];
const TENANT_ROLES = ["viewer", "member", "tenant_admin"];
type User = Entry & { role?: string; tenants?: Record<string, string>; disabled?: boolean; description?: string; default_tenant?: string; default_queue?: string; account?: string };

export function Users() {
  const config = useGet<ConfigView>("/config");
  const tokens = useGet<TokenList>(administers() ? "/tokens" : "");
  const [open, setOpen] = useState<Open | null>(null);
  const [sought, setSought] = useState("");
  const made = useMemo(() => {
    const counted = new Map<string, number>();
    for (const one of tokens.value?.tokens ?? []) counted.set(one.user, (counted.get(one.user) ?? 0) + 1);
    return counted;
  }, [tokens.value]);
  return (
    <Shown of={config}>{(view) => {
      const all = entries(view, "users") as User[];
      const found = all.filter((one) => `${one.name} ${one.description ?? ""} ${one.role ?? ""} ${Object.keys(one.tenants ?? {}).join(" ")}`.toLowerCase().includes(sought.toLowerCase()));
      const at = open ? all.findIndex((one) => one.name === open.name) : -1;
      const close = () => setOpen(null);
      const start = (next: Open) => { config.reload(); setOpen(next); }; // the form begins with what holds now
      return (
        <Card>
          <div class="filters">
            <input type="search" data-search placeholder={t("users.search")} aria-label={t("users.search")} value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
            {administers() ? <button type="button" onClick={() => start({ name: "", what: "edit" })}>{t("users.add")}</button> : null}
          </div>
          {found.length ? (
            <table class="plain rows">
              <thead><tr><th>{t("job.user")}</th><th class="rank-1">{t("users.role")}</th><th>{t("users.tenants")}</th><th>{t("users.access")}</th>{administers() ? <><th class="rank-1">{t("admin.tokens")}</th><th><span class="hidden">{t("declare.edit")}</span></th></> : null}</tr></thead>
              <tbody>{found.slice(0, SHOWN_MAX).map((one) => <Row key={one.name} of={one} tokens={made.get(one.name)} onOpen={start} />)}</tbody>
            </table>
          ) : <Empty title={all.length ? t("declare.nothing_found", { sought }) : t("users.none")} hint={all.length ? "" : t("users.none_hint")} command={all.length ? undefined : `penstock admin add user ann tenants.${entries(view, "tenants")[0]?.name ?? "default"}=member`} />}
          {found.length > SHOWN_MAX ? <p class="faint">{t("declare.more", { n: found.length - SHOWN_MAX })}</p> : null}
          {open?.what === "edit" && (open.name === "" || at >= 0) ? <Edit view={view} at={at} onClose={close} reload={config.reload} onRemove={() => setOpen({ name: open.name, what: "remove" })} /> : null}
          {open?.what === "disable" && at >= 0 ? <Disable view={view} of={all[at]!} at={at} onClose={close} reload={config.reload} /> : null}
          {open?.what === "remove" && at >= 0 ? <Remove view={view} name={open.name} change={{ remove: [`user.${open.name}`], set: [] }} text={t("users.remove_text")} warning={open.name === me.value?.user ? t("users.yourself") : undefined} onClose={close} reload={config.reload} /> : null}
        </Card>
      );
    }}</Shown>
  );
}

function Row(props: { of: User; tokens?: number; onOpen: (open: Open) => void }) {
  const { name, role, tenants, disabled, description } = props.of;
  const roles = Object.entries(tenants ?? {});
  const own = `/admin?tab=tokens&user=${encodeURIComponent(name)}`;
  return (
    <tr data-name={name}>
      <td>{name}{name === me.value?.user ? <span class="faint"> {t("users.you")}</span> : null}{description ? <p class="faint">{description}</p> : null}{role ? <p class="only-narrow">{t(`role.${role}`)}</p> : null}</td>
      <td class="rank-1">{role ? t(`role.${role}`) : <span class="faint">–</span>}</td>
      <td>{roles.length ? roles.map(([tenant, one]) => <div key={tenant}>{tenant}: {t(`tenant_role.${one}`)}</div>) : <span class="faint">–</span>}</td>
      <td>{disabled ? <strong class="worse">{t("users.disabled")}</strong> : t("users.enabled")}</td>
      {administers() ? (
        <>
          <td class="rank-1"><A to={own} label={props.tokens ? t("users.tokens_of", { n: props.tokens, name }) : t("users.make_token", { name })}>{props.tokens ? String(props.tokens) : t("token.make")}</A></td>
          <td><div class="tools"><button type="button" class="small" aria-label={t("declare.edit_of", { name })} onClick={() => props.onOpen({ name, what: "edit" })}>{t("declare.edit")}</button><button type="button" class="small" aria-label={t(disabled ? "users.enable_of" : "users.disable_of", { name })} onClick={() => props.onOpen({ name, what: "disable" })}>{t(disabled ? "users.enable" : "users.disable")}</button></div></td>
        </>
      ) : null}
    </tr>
  );
}

function Disable(props: { view: ConfigView; of: User; at: number; onClose: () => void; reload: () => void }) {
  const { name } = props.of;
  const [off] = useState(!props.of.disabled);
  const own = off && name === me.value?.user;
  return (
    <Declare title={t(off ? "users.disable_title" : "users.enable_title", { name })} view={props.view} path={`users[${props.at}].`} fields={[]} auto danger={off} change={{ set: [line(`user.${name}.disabled`, off || "")] }} done={t(off ? "users.disable_done" : "users.enable_done", { name })} warning={own ? t("users.yourself") : undefined} onClose={props.onClose} reload={props.reload}>{() => (
      <p>{t(off ? "users.disable_text" : "users.enable_text")}</p>
    )}</Declare>
  );
}

function Edit(props: { view: ConfigView; at: number; onClose: () => void; reload: () => void; onRemove: () => void }) {
  const all = entries(props.view, "users") as User[];
  const known = all[props.at];
  const base: Record<string, string> = { description: known?.description ?? "", role: known?.role ?? "", default_tenant: known?.default_tenant ?? "", default_queue: known?.default_queue ?? "", account: known?.account ?? "", ...Object.fromEntries(Object.entries(known?.tenants ?? {}).map(([tenant, role]) => [`tenants.${tenant}`, role])) };
  const edits = useEdits(base);
  const name = known?.name ?? edits.value("name").trim();
  const path = `user.${name}`;
  const roles = edits.keys("tenants.");
  const plain = ["description", "role", "default_tenant", "default_queue", "account"];
  const set = [
    ...plain.filter(edits.changed).map((field) => line(`${path}.${field}`, edits.value(field).trim())),
    ...(roles.some(edits.changed) ? [line(`${path}.tenants`, mapping(edits, "tenants"))] : []),
  ];
  const fields = ["name", ...plain, "tenants", ...roles];
  const change = known ? { set } : { add: [path], set: name.includes("=") ? [] : set };
  const own = known?.name === me.value?.user && edits.changed("role");
  const free = entries(props.view, "tenants").map((one) => one.name).filter((tenant) => !roles.includes(`tenants.${tenant}`));
  const queues = entries(props.view, "queues").map((one) => one.name);
  const choice = (field: string, of: string[], label: string, none: string, about: (field: string) => string[]) => (
    <Said label={label} of={about(field)} now={edits.now(field)}>{(attributes) => <select {...attributes} value={edits.value(field)} onChange={edits.edit(field)}><option value="">{none}</option>{of.map((one) => <option key={one} value={one}>{one}</option>)}</select>}</Said>
  );
  return (
    <Declare title={known ? t("users.edit_title", { name }) : t("users.add")} view={props.view} path={`users[${known ? props.at : all.length}].`} fields={fields} change={change} done={known ? t("declare.changed", { name }) : t("declare.added", { name })} warning={own ? t("users.yourself") : undefined} onClose={props.onClose} reload={props.reload} onRemove={known && props.onRemove}>{(about) => (
      <>
        {known ? null : <Said label={t("job.name")} hint={t("users.name_hint")} of={about("name")}>{(attributes) => <input {...attributes} required autocomplete="off" value={edits.value("name")} placeholder="ann" onInput={edits.edit("name")} />}</Said>}
        <Said label={t("declare.description")} of={about("description")} now={edits.now("description")}>{(attributes) => <input {...attributes} value={edits.value("description")} onInput={edits.edit("description")} />}</Said>
        <Said label={t("users.role")} hint={t("users.role_hint")} of={about("role")} now={edits.now("role")}>{(attributes) => <select {...attributes} value={edits.value("role")} onChange={edits.edit("role")}><option value="">{t("none")}</option>{CLUSTER_ROLES.map((one) => <option key={one} value={one}>{t(`role.${one}`)}</option>)}</select>}</Said>
        <fieldset class="amounts">
          <legend class="field-label">{t("users.tenants")}</legend>
          {about("tenants").map((message) => <p key={message} class="wrong">{message}</p>)}
          <div class="fields">{roles.map((key) => (
            <Said key={key} label={key.slice("tenants.".length)} of={about(key)} now={edits.now(key)}>{(attributes) => <select {...attributes} value={edits.value(key)} onChange={edits.edit(key)}><option value="">{t("users.no_role")}</option>{TENANT_ROLES.map((one) => <option key={one} value={one}>{t(`tenant_role.${one}`)}</option>)}</select>}</Said>
          ))}</div>
          {free.length ? <label class="field"><span class="faint">{t("users.add_tenant")}</span><select value="" onChange={(event) => { if (event.currentTarget.value) edits.put(`tenants.${event.currentTarget.value}`, "member"); event.currentTarget.value = ""; }}><option value="">{t("users.choose_tenant")}</option>{free.map((one) => <option key={one} value={one}>{one}</option>)}</select></label> : null}
        </fieldset>
        <div class="fields">
          {choice("default_tenant", entries(props.view, "tenants").map((one) => one.name), t("users.default_tenant"), t("users.default_of_cluster"), about)}
          {choice("default_queue", queues, t("users.default_queue"), t("users.default_of_cluster"), about)}
        </div>
        <Said label={t("users.account")} hint={t("users.account_hint")} of={about("account")} now={edits.now("account")}>{(attributes) => <input {...attributes} autocomplete="off" value={edits.value("account")} onInput={edits.edit("account")} />}</Said>
      </>
    )}</Declare>
  );
}
