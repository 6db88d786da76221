// Records next-token probabilities of llama.cpp for the GGUF files of gguf.py, in the
// form of internal/engine/cpu/testdata/recorded.json:
//
//   npm install node-llama-cpp@3.22.1
//   node scripts/reference/llamacpp/record.mjs RECORDED.json NAME.gguf...
//
// The tokens are those of the file; models are added to it or replaced. Keys and
// values are kept in float32 and flash attention is off, so that only the order of
// sums differs.
import {readFileSync, writeFileSync} from "node:fs";
import {basename} from "node:path";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const require = createRequire(process.cwd() + "/");
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));

const [file, ...models] = process.argv.slice(2);
const recorded = JSON.parse(readFileSync(file, "utf8"));
const positions = [0, 1, 2, 10, 40, 63, 64, 100, 149];
const llama = await getLlama({gpu: false, build: "never", progressLogs: false});

for (const path of models) {
    const name = basename(path, ".gguf");
    const model = await llama.loadModel({modelPath: path});
    const context = await model.createContext({
        // Short tables serve up to the original context, long ones above it.
        contextSize: name === "phi3short" ? 256 : 512, threads: 1, batchSize: 256, flashAttention: false,
        experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32",
    });
    const sequence = context.getSequence();
    const results = await sequence.controlledEvaluate(recorded.tokens.map(
        (token, i) => positions.includes(i) ? [token, {generateNext: {probabilities: true}}] : token));
    recorded.models[name] = positions.map((position) => ({
        position,
        top: [...results[position].next.probabilities.entries()].slice(0, 4)
            .map(([id, p]) => ({id, probability: Number(p.toPrecision(6))})),
    }));
    await context.dispose();
    await model.dispose();
    console.log(name);
}

const line = (p) => "   " + JSON.stringify(p);
const block = ([name, list]) => `  ${JSON.stringify(name)}: [\n${list.map(line).join(",\n")}\n  ]`;
writeFileSync(file, `{\n "comment": ${JSON.stringify(recorded.comment)},\n "tokens": ${JSON.stringify(recorded.tokens)},\n` +
    ` "models": {\n${Object.entries(recorded.models).map(block).join(",\n")}\n }\n}\n`);
process.exit(0);
