// Sign-in by an identity provider: what belongs to one that has begun stays in this tab until the browser comes back.
import { ROOT } from "../root";
import { get, send } from "./client";
import type { OidcView, SessionView, SignInBegun } from "./types.gen";

type Begun = { state: string; verifier: string; page: string; stay: boolean };
export type Finished = { session: SessionView; page: string; stay: boolean };

const KEPT = "penstock.signin";
export const CALLBACK = "/login/callback";

/** The provider refused, or what came back does not belong to a sign-in of this tab. */
export class NotSignedIn extends Error {}

/** What the provider is called; '' where people do not sign in this way. */
export async function providerName(): Promise<string> {
  const found = await get<OidcView>("/oidc");
  return found.available ? found.name : "";
}

/** Go to the provider; `page` is shown after. */
export async function beginSignIn(page: string, stay: boolean): Promise<void> {
  const body = { redirect_uri: new URL(CALLBACK.slice(1), ROOT).href };
  const begun = (await (await send("POST", "/oidc/start", { body })).json()) as SignInBegun;
  const url = new URL(begun.url);
  if (url.protocol !== "https:" && url.protocol !== "http:") throw new NotSignedIn();
  sessionStorage.setItem(KEPT, JSON.stringify({ state: begun.state, verifier: begun.code_verifier, page, stay } satisfies Begun));
  location.assign(url.href);
}

/** Whether this tab has begun a sign-in that is not finished. */
export function hasBegun(): boolean {
  return sessionStorage.getItem(KEPT) !== null;
}

/** Finish the sign-in with what the provider added to the address; each can be finished once. */
export async function finishSignIn(query: URLSearchParams): Promise<Finished> {
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  const begun = kept ? (JSON.parse(kept) as Begun) : null;
  const code = query.get("code");
  if (!begun || begun.state !== query.get("state")) throw new NotSignedIn();
  if (!code) throw new NotSignedIn(query.get("error_description") ?? query.get("error") ?? "");
  const body = { code, state: begun.state, code_verifier: begun.verifier };
  const session = (await (await send("POST", "/oidc/finish", { body })).json()) as SessionView;
  return { session, page: begun.page, stay: begun.stay };
}
