// Signing in: by a one-time link, whose code stands behind the # and so is never sent in an address; by an identity
// provider, which sends the browser back with a code; by a token.
//
// Anybody with a token can make a link that signs others in as its maker, who then sees what they do (login CSRF). So a
// link signs nobody in before a click on a button that names the user, also one that `penstock ui` opened: nothing in
// the browser tells it from a link in a message. A link of the user who is signed in here needs none.
import { useEffect, useState } from "preact/hooks";
import { logIn, logInWith, userOf } from "../api/client";
import { type Session, sessions, share, signedIn, stays } from "../api/live";
import { CALLBACK, NotSignedIn, beginSignIn, finishSignIn, providerName } from "../api/signin";
import { t } from "../i18n";
import { Copy, Field, Problem } from "../parts/basics";
import { go, path } from "../router";

/** The code of a one-time link, '' where the address has none. */
export function codeOfLink(): string {
  return path.value === "/login" ? location.hash.slice(1) : "";
}

export function Login() {
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [given, setGiven] = useState("");
  const [stay, setStay] = useState(false);
  const [provider, setProvider] = useState("");
  const [here, setHere] = useState<Session[]>([]);
  const [asked, setAsked] = useState<{ code: string; user: string } | null>(codeOfLink() ? { code: "", user: "" } : null);

  const take = async (session: Session, to: string, kept = stay) => {
    share(session, kept);
    go(to, { replace: true });
    await signedIn();
  };

  /** Do what signs somebody in; where that fails, say why, and who is signed in here. */
  const attempt = async (what: () => Promise<unknown>) => {
    setBusy(true);
    setProblem(null);
    try {
      await what();
    } catch (error) {
      setProblem(error);
      setAsked(null);
      setHere(await sessions());
    }
    setBusy(false);
  };

  const accept = async (code: string) => {
    const session = await logIn(code);
    await take(session, session.path);
  };

  const ask = () => {
    const code = codeOfLink();
    if (!code) return;
    history.replaceState(null, "", location.pathname);
    void attempt(async () => {
      const [user, known] = [await userOf(code), await sessions()];
      if (known.length && known.every((one) => one.user === user)) return accept(code);
      setHere(known);
      setAsked({ code, user });
    });
  };

  useEffect(() => {
    document.title = `${t("login.title")} · Penstock`;
    providerName().then(setProvider).catch(() => undefined);
    if (path.value === CALLBACK) {
      const came = new URLSearchParams(location.search);
      go("/login", { replace: true }); // a code is used once: no address keeps it
      void attempt(async () => {
        const found = await finishSignIn(came).catch((error) => {
          throw error instanceof NotSignedIn ? new Error(t(error.message ? "login.provider_refused" : "login.not_signed_in", { why: error.message })) : error;
        });
        await take(found.session, found.page, found.stay);
      });
    } else if (codeOfLink()) ask();
    else void sessions().then(setHere);
    addEventListener("hashchange", ask); // a link that is pasted into this page
    return () => removeEventListener("hashchange", ask);
  }, []);

  const wanted = () => (path.value === "/login" ? "/" : path.value + location.search);

  const leave = () => void attempt(() => beginSignIn(wanted(), stay));

  const submit = (event: Event) => {
    event.preventDefault();
    void attempt(async () => take(await logInWith(given.trim()), wanted()));
  };

  const goOn = (user: string) => void attempt(async () => {
    const known = await sessions();
    const session = known.find((one) => one.user === user);
    if (session) return take(session, wanted(), stays(user));
    setHere(known); // they have signed out since
  });

  const others = here.filter((one) => one.user !== asked?.user).map(({ user }) => (
    <button key={user} type="button" class="primary" disabled={busy} onClick={() => goOn(user)}>{t("login.continue", { user })}</button>
  ));

  if (asked && !asked.user) return <main class="login" id="main"><p class="loading" role="status">…</p></main>;
  if (asked)
    return (
      <main class="login" id="main">
        <h1>{t("login.ask", { user: asked.user })}</h1>
        {here.length ? <p>{t("login.ask_here", { users: here.map((one) => one.user).join(", ") })}</p> : null}
        <p>{t("login.ask_why", { user: asked.user })}</p>
        <p class="choices">
          {others}
          <button type="button" class={others.length ? "" : "primary"} disabled={busy} onClick={() => void attempt(() => accept(asked.code))}>{t("login.as", { user: asked.user })}</button>
          {others.length ? null : <button type="button" disabled={busy} onClick={() => setAsked(null)}>{t("cancel")}</button>}
        </p>
      </main>
    );
  return (
    <main class="login" id="main">
      <h1>Penstock</h1>
      <p>{t("login.lead")}</p>
      {problem ? <Problem of={problem} /> : null}
      {others.length ? <p class="choices">{others}</p> : null}
      {provider ? <p><button type="button" class="primary" disabled={busy} onClick={leave}>{t("login.provider", { name: provider })}</button></p> : null}
      <form onSubmit={submit}>
        <Field label={t("login.token")} hint={t("login.token_hint")}>
          <input type="password" autocomplete="off" value={given} onInput={(event) => setGiven(event.currentTarget.value)} required />
        </Field>
        <label class="check"><input type="checkbox" checked={stay} onChange={(event) => setStay(event.currentTarget.checked)} /> {t("login.stay")}</label>
        <button type="submit" class="primary" disabled={busy || !given.trim()}>{t("login.go")}</button>
      </form>
      <p>{t("login.link_hint")} <Copy text="penstock ui" /></p>
    </main>
  );
}
