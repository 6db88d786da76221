// Runs the reference implementation for TestOracle. Reads a JSON list of jobs
// {tokenizer, texts, pairs, ids} from the file named on the command line and prints for
// each, on a line of its own, {texts: [[plain ids, ids with special]], pairs: [...], ids: [[text, text skipping special]]}.
const fs = require("fs");
const path = require("path");
const { Tokenizer } = require(path.join(process.env.DYNCTL_TOKENIZERS_NODE_MODULES, "tokenizers"));

const jobs = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));

// Calls run(part) for parts of a list and joins what it returns.
async function inParts(list, run) {
  const out = [];
  for (let i = 0; i < list.length; i += 500) out.push(...(await run(list.slice(i, i + 500))));
  return out;
}

// Both variants of an operation, side by side.
const sides = (a, b) => a.map((x, i) => [x, b[i]]);

async function answer(job) {
  const t = Tokenizer.fromString(job.tokenizer);
  const encode = (list, addSpecialTokens) =>
    inParts(list, async (part) => (await t.encodeBatch(part, { addSpecialTokens })).map((e) => e.getIds()));
  const encodePairs = async (list, addSpecialTokens) => {
    const out = [];
    for (const [a, b] of list) out.push((await t.encode(a, b, { addSpecialTokens })).getIds());
    return out;
  };
  const decode = (list, skip) => inParts(list, (part) => t.decodeBatch(part, skip));
  return {
    texts: sides(await encode(job.texts, false), await encode(job.texts, true)),
    pairs: sides(await encodePairs(job.pairs, false), await encodePairs(job.pairs, true)),
    ids: sides(await decode(job.ids, false), await decode(job.ids, true)),
  };
}

(async () => {
  for (const job of jobs) process.stdout.write(JSON.stringify(await answer(job)) + "\n");
})().catch((e) => {
  console.error(String(e));
  process.exit(1);
});
