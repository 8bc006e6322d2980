// A certified OpenID Connect provider on loopback, for tests: whoever enters a name is signed in as that user.
import { createServer } from "node:http";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../ui/package.json", import.meta.url));
const { Provider } = await import(require.resolve("oidc-provider"));
const { secret, groups } = JSON.parse(process.argv[2]);
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "penstock",
      client_secret: secret,
      application_type: "native", // any port of loopback
      redirect_uris: ["http://127.0.0.1/login/callback"],
    }],
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
    cookies: { keys: ["of tests"] },
    pkce: { required: () => true },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, groups: groups[id] ?? [], email: `${id}@example.org`, email_verified: true }),
    }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
