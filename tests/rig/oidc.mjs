// A certified OpenID provider on this machine: anybody signs in there, with whatever password, as who they say they are.
import { generateKeyPairSync } from "node:crypto"
import { resolve } from "node:path"
import { pathToFileURL } from "node:url"

const [program, port, redirect, method] = process.argv.slice(2)
const { default: Provider } = await import(pathToFileURL(resolve(program)))
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
const key = { ...privateKey.export({ format: "jwk" }), use: "sig", kid: `key-${process.pid}` }
const secret = method === "none" ? {} : { client_secret: "secret of the client" }
const provider = new Provider(`http://localhost:${port}`, {
  clients: [{ client_id: "perdure", redirect_uris: redirect.split(","), token_endpoint_auth_method: method, ...secret }],
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: `name of ${id}` }) }),
  pkce: { required: () => true },
  jwks: { keys: [key] },
  cookies: { keys: ["a key of a test"] },
})
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"))
process.stdin.on("end", () => process.exit(0)).resume()
