// Perdure for OpenCode: what matters, beside each message; every turn, kept.
//
// It never blocks OpenCode and never fails it: everything has a time limit, and an error is an answer without text. What
// is said and what is kept is decided by the hook, a process; here is only when it is asked.
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";

const COMMAND = null;

const TOOL_MS = 800; // the most that the result of a tool waits for the hook, a process
const TOOLS = ["bash", "edit", "write", "read", "patch", "apply_patch"]; // run commands, and read or change files
const LAST_MS = 2000; // the most that the end of OpenCode does
const NOTHING = { text: "", notice: "" };

const command = COMMAND ?? ["perdure-hook", "opencode"];

const at = command.indexOf("--home");
const home = at >= 0 ? command[at + 1] : process.env.PERDURE_HOME || path.join(os.homedir(), ".perdure");

/** The longest that a message waits: `hooks.limit_ms` of the settings, and a moment for the hook to end itself. */
function readLimit() {
  try {
    const settings = fs.readFileSync(path.join(home, "config.toml"), "utf8");
    return Number(/^[^#\n]*\blimit_ms\s*=\s*(\d+)/m.exec(settings)?.[1] ?? 1000) + 500;
  } catch {
    return 1500;
  }
}
const LIMIT_MS = readLimit();

/** What the lines of a hook say; nothing where they mean nothing. */
function read(answer) {
  try {
    const said = answer.split("\n").filter(Boolean).map((line) => ({ ...NOTHING, ...JSON.parse(line) }));
    const joined = (name) => said.map((one) => one[name]).filter(Boolean).join("\n\n");
    return { text: joined("text"), notice: joined("notice") };
  } catch {
    return NOTHING;
  }
}

/** Run the hook for an event. Resolves with what it says, at the latest after `limit` milliseconds. */
function hook(name, said, limit = LIMIT_MS) {
  return new Promise((resolve) => {
    let answer = "";
    const timer = setTimeout(() => resolve(NOTHING), limit);
    const end = (value) => (clearTimeout(timer), resolve(value));
    try {
      const stdio = ["pipe", "pipe", "ignore"];
      const child = spawn(command[0], [...command.slice(1), name], { stdio, detached: true });
      child.on("error", () => end(NOTHING)); // it is not there, or not there any more: OpenCode goes on
      child.stdin.on("error", () => {});
      child.stdout.on("data", (part) => (answer += part));
      child.on("close", () => end(read(answer)));
      child.stdin.end(JSON.stringify({ hook_event_name: name, ...said }));
      child.unref();
    } catch {
      end(NOTHING);
    }
  });
}

export const Perdure = async ({ client, directory }) => {
  const parents = new Map(); // session -> the one that spawned it, or ""
  const made = new Set(); // sessions that began here
  const known = new Set(); // sessions that had a message here
  const commands = new Set(); // sessions whose next message is a command's, not a person's
  const emptied = new Set(); // sessions that were compacted since their last message

  const show = ({ notice }) => {
    if (notice) void client.tui?.showToast?.({ body: { message: notice, variant: "warning" } })?.catch?.(() => {});
  };

  async function parentOf(id) {
    if (!parents.has(id)) {
      const found = await client.session.get({ path: { id } }).catch(() => undefined);
      parents.set(id, found?.data?.parentID ?? "");
    }
    return parents.get(id);
  }

  /** What goes with a message: what a session is told when it begins or was compacted, and what matters now. */
  async function beside(id, prompt) {
    const parent = await parentOf(id);
    const said = { session_id: id, cwd: directory, agent_id: parent ? id : "" };
    const answers = []; // one after the other: what a session holds decides what it is told
    const endsAt = Date.now() + LIMIT_MS;
    const ask = async (name, more) => answers.push(await hook(name, { ...said, ...more }, endsAt - Date.now()));
    const isNew = !known.has(id);
    known.add(id);
    if (emptied.delete(id)) await ask("session.compacted", {});
    else if (isNew && !parent) await ask("session.created", { source: made.has(id) ? "startup" : "resume" });
    if (!commands.delete(id) && prompt.trim()) await ask("chat.message", { prompt });
    answers.forEach(show);
    return answers.map((answer) => answer.text).filter(Boolean).join("\n\n");
  }

  return {
    "command.execute.before": async (input) => void commands.add(input.sessionID),

    "chat.message": async (input, output) => {
      try {
        const { sessionID } = input;
        const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text);
        const text = await beside(sessionID, typed.join("\n"));
        // The id sorts behind those of the other parts: the text stands behind what was typed.
        const id = "prt_zzz" + Date.now().toString(36) + Math.random().toString(36).slice(2, 10);
        if (text) output.parts.push({ id, messageID: output.message.id, sessionID, type: "text", text, synthetic: true });
      } catch {} // nobody's trouble: the message goes on without it
    },

    // A fact of earlier work, behind the result of a tool: what made a failed command work, what was decided about a file.
    "tool.execute.after": async (input, output) => {
      try {
        if (!TOOLS.includes(input.tool) || typeof output?.output !== "string") return;
        if (input.tool === "bash" && !output.metadata?.exit) return; // it worked: there is nothing to say
        const response = { exit_code: output.metadata?.exit, output: output.output };
        const call = { tool_name: input.tool, tool_input: input.args, tool_response: response };
        const agent = (await parentOf(input.sessionID)) ? input.sessionID : "";
        const said = { session_id: input.sessionID, cwd: directory, agent_id: agent, ...call };
        const answer = await hook("tool.execute.after", said, TOOL_MS);
        if (answer.text) output.output += "\n\n" + answer.text;
      } catch {} // nobody's trouble: the result goes on without it
    },

    event: async ({ event }) => {
      const { sessionID, info } = event.properties ?? {};
      if (event.type === "session.created" && info) {
        made.add(info.id);
        parents.set(info.id, info.parentID ?? "");
      } else if (event.type === "session.compacted") {
        emptied.add(sessionID);
      } else if (event.type === "session.idle") {
        void hook("session.idle", { session_id: sessionID, cwd: directory }, LAST_MS).then(show); // not waited for
      }
    },

    // What OpenCode changes behind the last turn, and what a turn that was broken off left.
    dispose: async () => {
      if (known.size) await hook("dispose", { sessions: [...known], cwd: directory }, LAST_MS);
    },
  };
};
