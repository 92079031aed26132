// BullMQ: one worker process with concurrency 100, jobs removed on completion, on ioredis (its documented client).
import { createRequire } from "node:module";
import { Queue, Worker } from "bullmq";
import IORedis from "ioredis";

const require = createRequire(import.meta.url);
const VERSION = require("bullmq/package.json").version;
const CLIENT = `ioredis ${require("ioredis/package.json").version}, node ${process.versions.node}`;
const KEEP = { removeOnComplete: true, removeOnFail: true };
const FILL_BATCH = 500;
// A payload that begins with it holds the monotonic time, in ns, at which its job was enqueued or becomes due.
const STAMP = "t";

const [action, text] = process.argv.slice(2);
const parameters = JSON.parse(text);
const { hostname, port } = new URL(parameters.url);
const connect = () => new IORedis({ host: hostname, port: Number(port), maxRetriesPerRequest: null });
const data = "x".repeat((parameters.payload ?? 32) - 2);

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const seconds = () => Number(process.hrtime.bigint()) / 1e9;
const cpu = () => {
  const used = process.cpuUsage();
  return (used.user + used.system) / 1e6;
};

async function bulk(queue, jobs, size, options) {
  for (let begun = 0; begun < jobs; begun += size) {
    const count = Math.min(size, jobs - begun);
    await queue.addBulk(Array.from({ length: count }, () => ({ name: "noop", data, opts: options })));
  }
}

async function fill() {
  const queue = new Queue("bench", { connection: connect() });
  const delay = parameters.delay ? { delay: parameters.delay * 1000 } : {};
  await queue.waitUntilReady();
  const cpuBegun = cpu();
  await bulk(queue, parameters.jobs, FILL_BATCH, { ...KEEP, ...delay });
  return {
    jobs: parameters.jobs,
    seconds: 0,
    cpu_seconds: cpu() - cpuBegun,
    version: VERSION,
    settings: { client: CLIENT, "bulk call": "Queue.addBulk" },
  };
}

async function enqueue() {
  const { jobs, mode } = parameters;
  const queue = new Queue("bench", { connection: connect() });
  await queue.waitUntilReady();
  const begun = seconds();
  const cpuBegun = cpu();
  if (mode === "bulk") {
    await bulk(queue, jobs, parameters.bulk, KEEP);
  } else if (mode === "single") {
    for (let n = 0; n < jobs; n++) await queue.add("noop", data, KEEP);
  } else if (mode === "drip") {
    for (let n = 0; n < jobs; n++) {
      await sleep(1000 * parameters.pause * (0.5 + Math.random()));
      await queue.add("noop", STAMP + process.hrtime.bigint(), KEEP);
    }
  } else {
    let left = jobs;
    const caller = async () => {
      while (left-- > 0) await queue.add("noop", data, KEEP);
    };
    await Promise.all(Array.from({ length: parameters.callers }, caller));
  }
  return {
    jobs,
    seconds: seconds() - begun,
    cpu_seconds: cpu() - cpuBegun,
    version: VERSION,
    settings: { client: CLIENT, "bulk call": "Queue.addBulk" },
  };
}

async function schedule() {
  const { jobs } = parameters;
  const queue = new Queue("bench", { connection: connect() });
  const boot = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6)) - process.hrtime.bigint();
  const now = Date.now();
  const all = Array.from({ length: jobs }, (_, number) => {
    const due = now + Math.floor(1000 * parameters.after + (number * 1000 * parameters.span) / jobs);
    const data = STAMP + (BigInt(due) * 1000000n - boot);
    // A delay counts from the timestamp, so that a job is due in this very ms.
    return { name: "noop", data, opts: { ...KEEP, timestamp: now, delay: due - now } };
  });
  for (let begun = 0; begun < jobs; begun += FILL_BATCH) await queue.addBulk(all.slice(begun, begun + FILL_BATCH));
  if (Date.now() >= now + 1000 * parameters.after) {
    throw new Error(`the first of ${jobs} jobs was due before the last was enqueued`);
  }
  return { jobs, seconds: 0, cpu_seconds: 0, version: VERSION };
}

async function work() {
  const { jobs, concurrency } = parameters;
  const delays = [];
  let count = 0;
  let begun = 0;
  let cpuBegun = 0;
  const allStarted = new Promise((resolve) => {
    const worker = new Worker(
      "bench",
      async (job) => {
        if (job.data[0] === STAMP) delays.push(Number(process.hrtime.bigint() - BigInt(job.data.slice(1))) / 1e6);
        if (count++ === 0) {
          begun = seconds();
          cpuBegun = cpu();
          if (parameters.announce) console.log("ready");
        }
        if (count === jobs) resolve();
      },
      { connection: connect(), concurrency },
    );
    worker.on("error", (error) => {
      console.error(error);
      process.exit(1);
    });
  });
  await allStarted;
  const queue = new Queue("bench", { connection: connect() });
  while (!parameters.leave) {
    const left = await queue.getJobCounts("waiting", "active", "prioritized", "delayed");
    if (Object.values(left).reduce((sum, size) => sum + size, 0) === 0) break;
    await sleep(1);
  }
  return {
    jobs,
    seconds: seconds() - begun,
    cpu_seconds: cpu() - cpuBegun,
    values_ms: delays,
    version: VERSION,
    settings: { client: CLIENT, concurrency, removeOnComplete: true },
  };
}

const actions = { fill, enqueue, schedule, work };
const report = actions[action]
  ? await actions[action]()
  : { jobs: 0, seconds: 0, cpu_seconds: 0, version: VERSION, unsupported: `no action ${action}` };
process.stdout.write(JSON.stringify(report) + "\n", () => process.exit(0));
