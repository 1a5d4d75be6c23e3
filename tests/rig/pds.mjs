// A real server of the AT Protocol with a directory of DIDs of its own, both on this machine. It says where they are on
// its first line, and then makes people, as asked by lines on standard input; it ends with that input.
import { resolve } from "node:path"
import { createInterface } from "node:readline"
import { pathToFileURL } from "node:url"

const { TestNetworkNoAppView } = await import(pathToFileURL(resolve(process.argv[2])))

const network = await TestNetworkNoAppView.create({ dbPostgresSchema: "perdure" })
console.log(JSON.stringify({ server: network.pds.url, directory: network.plc.url }))
const client = network.pds.getAgent()
for await (const line of createInterface({ input: process.stdin })) {
  const { handle, password, rename } = JSON.parse(line)
  try {
    if (rename) {
      await client.login({ identifier: handle, password })
      await client.com.atproto.identity.updateHandle({ handle: rename })
      console.log(JSON.stringify({ handle: rename }))
    } else {
      const { data } = await client.createAccount({ handle, password, email: `${handle}@example.com` })
      console.log(JSON.stringify({ did: data.did, handle: data.handle }))
    }
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }))
  }
}
await network.close()
