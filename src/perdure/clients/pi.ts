// Perdure for pi: what matters, beside each message; every turn, kept.
//
// It never blocks pi and never fails it: everything has a time limit, and an error is an answer without text. Recall is
// asked of the resident home over its socket, and of the hook (a process) where there is none; capture is the hook's.
import { spawn } from "node:child_process";
import * as crypto from "node:crypto";
import * as fs from "node:fs";
import * as net from "node:net";
import * as os from "node:os";
import * as path from "node:path";

const COMMAND: string[] | null = null;

const TOOL_MS = 300; // the most that the result of a tool waits
const TOOLS = ["bash", "edit", "write", "read"]; // run commands, and read or change files
const MAX_ERROR_CHARS = 8000; // of the output of a tool that failed, from its end
const LAST_MS = 2000; // the most that the end of a session does
const MAX_TEXT_CHARS = 1_000_000; // a floor within its budgets is a quarter of that; pi itself has no limit
const MAX_ADDRESS = 100; // bytes of a socket's path that every system takes

type Said = { text: string; notice: string };
const NOTHING: Said = { text: "", notice: "" };

const command = COMMAND ?? ["perdure-hook", "pi"];
const at = command.indexOf("--home");
const home = at >= 0 ? command[at + 1] : process.env.PERDURE_HOME || path.join(os.homedir(), ".perdure");

/** The longest that a message waits: `hooks.limit_ms` of the settings. */
function readLimit(): number {
  try {
    const settings = fs.readFileSync(path.join(home, "config.toml"), "utf8");
    return Number(/^[^#\n]*\blimit_ms\s*=\s*(\d+)/m.exec(settings)?.[1] ?? 1000);
  } catch {
    return 1000;
  }
}
const LIMIT_MS = readLimit();

/** Where the resident home of this home listens: the same path as `perdure.capture.events.to_socket_path`. */
function address(): string {
  const inside = path.join(home, "run", "home.sock");
  if (Buffer.byteLength(inside) <= MAX_ADDRESS) return inside;
  const name = crypto.createHash("sha256").update(home).digest("hex").slice(0, 16);
  return path.join(os.tmpdir(), `perdure-${process.geteuid!()}`, `${name}.sock`);
}

/** The resident home's answer; null where there is none. A slow one is an answer without text. */
function ask(event: object, limit = LIMIT_MS): Promise<Said | null> {
  return new Promise((resolve) => {
    let answer = "";
    try {
      const found = fs.statSync(address());
      if (!found.isSocket() || found.uid !== process.geteuid!()) return resolve(null);
    } catch {
      return resolve(null);
    }
    const line = net.createConnection(address());
    const timer = setTimeout(() => (line.destroy(), resolve(NOTHING)), limit);
    const end = (said: Said | null) => (clearTimeout(timer), line.destroy(), resolve(said));
    line.on("error", () => end(null));
    line.on("close", () => end(null));
    line.on("connect", () => line.write(JSON.stringify({ op: "event", event, limit_ms: limit }) + "\n"));
    line.setEncoding("utf8");
    line.on("data", (part) => {
      answer += part;
      if (!answer.endsWith("\n")) return;
      try {
        const said = JSON.parse(answer);
        end({ text: String(said.text ?? ""), notice: String(said.notice ?? "") });
      } catch {
        end(NOTHING);
      }
    });
  });
}

/** What the lines of a hook say; nothing where they mean nothing. */
function read(answer: string): Said {
  try {
    const said: Said[] = answer.split("\n").filter(Boolean).map((line: string) => ({ ...NOTHING, ...JSON.parse(line) }));
    const joined = (name: keyof Said) => said.map((one) => one[name]).filter(Boolean).join("\n\n");
    return { text: joined("text"), notice: joined("notice") };
  } catch {
    return NOTHING;
  }
}

/** Run the hook for an event. Resolves with what it says, at the latest after `limit` milliseconds. */
function hook(name: string, said: object, limit: number): Promise<Said> {
  return new Promise((resolve) => {
    let answer = "";
    const timer = setTimeout(() => resolve(NOTHING), limit);
    const end = (value: Said) => (clearTimeout(timer), resolve(value));
    try {
      const child = spawn(command[0], [...command.slice(1), name], { stdio: ["pipe", "pipe", "ignore"], detached: true });
      child.on("error", () => end(NOTHING)); // it is not there, or not there any more: pi goes on
      child.stdin.on("error", () => {});
      child.stdout.on("data", (part) => (answer += part));
      child.on("close", () => end(read(answer)));
      child.stdin.end(JSON.stringify(said));
      child.unref();
    } catch {
      end(NOTHING);
    }
  });
}

export default function (pi: any) {
  let typed = ""; // as the person wrote it: what pi makes of a slash command is not theirs
  let isExtension = false;
  let pending = ""; // what a compaction brought back, for the next message
  let running: Promise<Said> | null = null;
  let again = false;

  const say = (name: string, ctx: any, more: object = {}) => ({
    hook_event_name: name,
    session_id: ctx?.sessionManager?.getSessionId?.() ?? "",
    transcript_path: ctx?.sessionManager?.getSessionFile?.() ?? "",
    cwd: ctx?.cwd ?? "",
    ...more,
  });
  const event = (kind: string, said: any, isHuman: boolean, cause = "") => ({
    client: "pi", kind, session: said.session_id, cwd: said.cwd, transcript: said.transcript_path,
    prompt: said.prompt ?? "", is_human: isHuman, agent: "", cause,
  });
  /** Whether the session began as a copy of another, with what that was given. */
  const isCopy = (ctx: any): boolean =>
    Boolean(ctx?.sessionManager?.getHeader?.()?.parentSession) &&
    (ctx.sessionManager.getBranch?.() ?? []).some((e: any) => e.type === "custom_message" && e.customType === "perdure");
  const show = (ctx: any, notice: string) => {
    if (notice && ctx?.hasUI) ctx.ui.notify(notice, "warning");
  };

  /** Capture beside what pi does: one process at a time, and one more when something came meanwhile. */
  function capture(name: string, ctx: any, limit: number): Promise<Said> {
    if (running) {
      again = true;
      return running;
    }
    running = hook(name, say(name, ctx), limit).then((said) => {
      running = null;
      show(ctx, said.notice);
      if (!again) return said;
      again = false;
      return capture(name, ctx, limit);
    });
    return running;
  }

  /** A listener whose errors are nobody's trouble. */
  const on = (name: string, listen: (event: any, ctx: any) => Promise<any>) =>
    pi.on(name, async (given: any, ctx: any) => {
      try {
        return await listen(given, ctx);
      } catch {
        return undefined;
      }
    });

  on("input", async (given) => {
    typed = given.text ?? "";
    isExtension = given.source === "extension";
  });

  on("session_start", async (given, ctx) => {
    const cause = isCopy(ctx) ? "fork" : given.reason === "fork" ? "startup" : given.reason ?? "";
    const said = say("session_start", ctx, { source: cause });
    const answer = (await ask(event("start", said, true, cause))) ?? NOTHING; // without it, the first message brings it
    pending = answer.text;
    show(ctx, answer.notice);
  });

  on("session_compact", async (_given, ctx) => {
    const said = say("session_compact", ctx);
    const answer = (await ask(event("after-compact", said, true))) ?? (await hook("session_compact", said, LIMIT_MS));
    pending = answer.text;
    show(ctx, answer.notice);
  });

  on("before_agent_start", async (given, ctx) => {
    const isCommand = /^\/[A-Za-z][\w:.-]*(\s|$)/.test(typed.trimStart());
    const prompt = given.prompt ?? "";
    let answer: Said = NOTHING;
    if (prompt.trim() && !isCommand) {
      const cause = isCopy(ctx) ? "fork" : "";
      const said = say("before_agent_start", ctx, { prompt, source: isExtension ? "extension" : cause });
      answer =
        (await ask(event("prompt", said, !isExtension, cause))) ?? (await hook("before_agent_start", said, LIMIT_MS));
    }
    typed = "";
    isExtension = false;
    show(ctx, answer.notice);
    const text = [pending, answer.text].filter(Boolean).join("\n\n");
    pending = "";
    if (!text || text.length > MAX_TEXT_CHARS) return undefined;
    return { message: { customType: "perdure", content: text, display: false } };
  });

  // A fact of earlier work, behind the result of a tool: what made a failed command work, what was decided about a file.
  on("tool_result", async (given, ctx) => {
    if (!TOOLS.includes(given.toolName) || (given.toolName === "bash" && !given.isError)) return undefined;
    if (!fs.existsSync(address())) return undefined; // no resident home: nothing is told
    const output = (given.content ?? []).map((part: any) => (part.type === "text" ? part.text : "")).join("\n");
    const said = say("tool_result", ctx);
    const call = {
      tool: given.toolName, command: given.toolName === "bash" ? String(given.input?.command ?? "") : "",
      files: given.toolName === "bash" ? [] : [String(given.input?.path ?? "")].filter(Boolean),
      error: given.isError ? output.slice(-MAX_ERROR_CHARS) : "",
    };
    const answer = await ask({ ...event("after-tool", said, false), ...call }, TOOL_MS);
    if (!answer?.text || answer.text.length > MAX_TEXT_CHARS) return undefined;
    return { content: [...(given.content ?? []), { type: "text", text: answer.text }] };
  });

  on("turn_end", async (_given, ctx) => {
    void capture("turn_end", ctx, LAST_MS); // not waited for
  });
  on("session_before_compact", async (_given, ctx) => {
    await capture("session_before_compact", ctx, LIMIT_MS);
  });
  on("session_shutdown", async (_given, ctx) => {
    again = Boolean(running); // what came last is in the file by now
    await Promise.race([capture("session_shutdown", ctx, LAST_MS), new Promise((end) => setTimeout(end, LAST_MS))]);
  });
}
