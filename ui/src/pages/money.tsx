// What tenants owe and have: accounts with budgets, this month's bill, invoices; issuing and paying for administrators.
import { useState } from "preact/hooks";
import { administers, post, send } from "../api/client";
import type { AccountList, AccountView, BillList, InvoiceList, InvoiceView, MoneyAnswer } from "../api/types.gen";
import { useGet } from "../api/use";
import { money } from "../format";
import { t } from "../i18n";
import { A, Bar, Card, Confirm, Empty, Field, Head, Shown, Tabs, Time } from "../parts/basics";
import { query, setQuery } from "../router";

const MAX_STALE_S = 3_600;

export function Page() {
  const tab = query.value.get("tab") ?? "accounts";
  return (
    <>
      <Head title={t("nav.money")} />
      <Tabs label={t("nav.money")} at={tab} onChoose={(key) => setQuery({ tab: key === "accounts" ? "" : key })} of={["accounts", "bill", "invoices"].map((key) => [key, t(`money.${key}`)])} />
      {tab === "bill" ? <Bills /> : tab === "invoices" ? <Invoices /> : <Accounts />}
    </>
  );
}

function Accounts() {
  const accounts = useGet<AccountList>("/accounts");
  const [credit, setCredit] = useState("");
  return (
    <Shown of={accounts}>{(list) => (
      <>
        {list.priced ? null : <p class="banner">{t("money.unpriced")} <code>penstock admin set billing.prices…</code></p>}
        {list.accounts.length ? (
          <div class="grid">
            {list.accounts.map((account) => (
              <Card key={account.tenant} title={account.tenant} tools={administers() ? <button type="button" class="small" onClick={() => setCredit(account.tenant)}>{t("money.add_credit")}</button> : null}>
                {account.held ? <p class="banner">{account.held}</p> : null}
                <dl class="facts">
                  {(["balance", "credit", "owed", "unbilled", "month_spent", "day_cost"] as const).map((key) => [<dt key={key}>{t(`money.${key}`)}</dt>, <dd key={`${key}v`}>{money(account[key], list.currency, list.digits)}</dd>])}
                </dl>
                <Budgets of={account} list={list} />
              </Card>
            ))}
          </div>
        ) : <Empty title={t("money.no_accounts")} />}
        {credit ? <Credit tenant={credit} onClose={() => setCredit("")} onDone={accounts.reload} /> : null}
      </>
    )}</Shown>
  );
}

function Budgets(props: { of: AccountView; list: AccountList }) {
  const show = (amount: number) => money(amount, props.list.currency, props.list.digits);
  return (
    <>
      {props.of.budgets.map((budget) => (
        <div key={budget.name} class="budget">
          <p><strong>{budget.name}</strong> {show(budget.spent)} / {show(budget.amount)} <span class="faint">{budget.hard ? t("money.hard") : ""} {t("money.until")} <Time ms={budget.until_ms} /></span></p>
          <Bar label={budget.name} whole={Math.max(budget.amount, budget.forecast_high, 1)} parts={[
            { kind: "used", value: Math.min(budget.spent, budget.amount), label: t("money.spent") },
            { kind: "unhealthy", value: Math.max(0, budget.spent - budget.amount), label: t("money.over") },
            { kind: "closed", value: Math.max(0, budget.forecast_high - Math.max(budget.spent, 0)), label: t("money.forecast") },
          ]} />
          <p class="faint">{t("money.forecast")}: {show(budget.forecast_low)} – {show(budget.forecast_high)}</p>
        </div>
      ))}
    </>
  );
}

function Credit(props: { tenant: string; onClose: () => void; onDone: () => void }) {
  const [amount, setAmount] = useState("");
  const [reference, setReference] = useState("");
  const run = async () => {
    await post<MoneyAnswer>(`/accounts/${encodeURIComponent(props.tenant)}/credits`, { amount, reference });
    props.onDone();
    return t("money.credit_done", { tenant: props.tenant });
  };
  return (
    <Confirm title={t("money.credit_title", { tenant: props.tenant })} action={t("money.add_credit")} onClose={props.onClose} run={run} disabled={!amount || !reference}>
      <Field label={t("money.amount")}><input inputMode="decimal" value={amount} onInput={(event) => setAmount(event.currentTarget.value)} /></Field>
      <Field label={t("money.reference")} hint={t("money.reference_hint")}><input value={reference} maxLength={200} onInput={(event) => setReference(event.currentTarget.value)} /></Field>
    </Confirm>
  );
}

function Bills() {
  const month = query.value.get("month") ?? "";
  const bills = useGet<BillList>("/bill", { month, summed: true }, MAX_STALE_S);
  return (
    <>
      <div class="filters"><label>{t("money.month")} <input type="month" value={month} onInput={(event) => setQuery({ month: event.currentTarget.value })} /></label></div>
      <Shown of={bills}>{(list) => list.bills.length ? (
        <>
          {list.bills.map((bill) => {
            const users = new Map<string, number>();
            for (const line of bill.lines) users.set(line.user, (users.get(line.user) ?? 0) + line.amount);
            return (
              <Card key={bill.tenant} title={`${bill.tenant}: ${money(bill.total, bill.currency, bill.digits)}`}>
                <table class="plain">
                  <thead><tr><th>{t("job.user")}</th><th class="number">{t("money.amount")}</th></tr></thead>
                  <tbody>{[...users].sort((a, b) => b[1] - a[1]).slice(0, 50).map(([user, amount]) => <tr key={user}><td>{user}</td><td class="number">{money(amount, bill.currency, bill.digits)}</td></tr>)}</tbody>
                </table>
                <details><summary>{t("money.lines", { n: bill.lines.length })}</summary>
                  <table class="plain">
                    <thead><tr><th>{t("job.user")}</th><th>{t("job.queue")}</th><th>{t("money.resource")}</th><th class="number">{t("money.hours")}</th><th class="number">{t("money.amount")}</th></tr></thead>
                    <tbody>{bill.lines.slice(0, 500).map((line, at) => <tr key={at}><td><A to={`/jobs?user=${encodeURIComponent(line.user)}`}>{line.user}</A></td><td>{line.queue}</td><td>{line.model || line.resource}</td><td class="number">{(line.quantity_ms / 3_600_000).toFixed(2)}</td><td class="number">{money(line.amount, bill.currency, bill.digits)}</td></tr>)}</tbody>
                  </table>
                </details>
              </Card>
            );
          })}
        </>
      ) : <Empty title={t("money.no_bill")} />}</Shown>
    </>
  );
}

function Invoices() {
  const invoices = useGet<InvoiceList>("/invoices");
  const [paying, setPaying] = useState<InvoiceView | null>(null);
  const [issuing, setIssuing] = useState(false);
  return (
    <Shown of={invoices}>{(list) => (
      <Card tools={null}>
        {administers() ? <p><button type="button" onClick={() => setIssuing(true)}>{t("money.issue")}</button></p> : null}
        {list.open.length ? <p>{t("money.open")} {list.open.map((one) => <span key={one.tenant} class="chip">{one.tenant}: {money(one.due, list.currency, list.digits)}</span>)}</p> : null}
        {list.invoices.length ? (
          <table class="plain">
            <thead><tr><th>{t("money.number")}</th><th>{t("job.tenant")}</th><th>{t("money.issued")}</th><th class="number">{t("money.total")}</th><th class="number">{t("money.due")}</th><th /></tr></thead>
            <tbody>{list.invoices.map((one) => (
              <tr key={one.number}>
                <td>{one.number}{one.corrects ? <span class="faint"> {t("money.corrects", { number: one.corrects })}</span> : null}</td><td>{one.tenant}</td><td><Time ms={one.issued_ms} /></td>
                <td class="number">{money(one.total, list.currency, list.digits)}</td><td class="number">{money(one.due, list.currency, list.digits)}</td>
                <td>
                  <button type="button" class="small" onClick={() => void download(one.number, "pdf")}>PDF</button> <button type="button" class="small" onClick={() => void download(one.number, "csv")}>CSV</button>
                  {administers() && one.due > 0 ? <> <button type="button" class="small" onClick={() => setPaying(one)}>{t("money.pay")}</button></> : null}
                </td>
              </tr>
            ))}</tbody>
          </table>
        ) : <Empty title={t("money.no_invoices")} hint={t("money.no_invoices_hint")} command="penstock money invoice issue TENANT" />}
        {paying ? <Pay of={paying} onClose={() => setPaying(null)} onDone={invoices.reload} /> : null}
        {issuing ? <Issue onClose={() => setIssuing(false)} onDone={invoices.reload} /> : null}
      </Card>
    )}</Shown>
  );
}

async function download(invoice: string, format: string): Promise<void> {
  const answer = await send("GET", `/invoices/${encodeURIComponent(invoice)}`, { query: { format } });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${invoice.replace(/[^\w.-]/g, "_")}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function Pay(props: { of: InvoiceView; onClose: () => void; onDone: () => void }) {
  const [amount, setAmount] = useState("");
  const [reference, setReference] = useState("");
  return (
    <Confirm title={t("money.pay_title", { number: props.of.number })} action={t("money.pay")} onClose={props.onClose} disabled={!amount || !reference} run={async () => {
      await post<MoneyAnswer>(`/invoices/${encodeURIComponent(props.of.number)}/payments`, { amount, reference });
      props.onDone();
      return t("money.paid", { number: props.of.number });
    }}>
      <Field label={t("money.amount")}><input inputMode="decimal" value={amount} onInput={(event) => setAmount(event.currentTarget.value)} /></Field>
      <Field label={t("money.reference")} hint={t("money.reference_hint")}><input value={reference} maxLength={200} onInput={(event) => setReference(event.currentTarget.value)} /></Field>
    </Confirm>
  );
}

function Issue(props: { onClose: () => void; onDone: () => void }) {
  const [tenant, setTenant] = useState("");
  return (
    <Confirm title={t("money.issue")} action={t("money.issue")} onClose={props.onClose} disabled={!tenant} run={async () => {
      const done = await post<MoneyAnswer>("/invoices", { tenant });
      props.onDone();
      return t("money.issued_done", { number: done.number });
    }}>
      <Field label={t("job.tenant")}><input value={tenant} onInput={(event) => setTenant(event.currentTarget.value)} /></Field>
    </Confirm>
  );
}
