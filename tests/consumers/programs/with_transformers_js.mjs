// Encode with transformers.js: FOLDER TEXTS VECTORS DTYPE POOLING, without a network
import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname } from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [folder, texts, vectors, dtype, pooling] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const encode = await pipeline("feature-extraction", basename(folder), { dtype });
const rows = [];
for (const text of JSON.parse(readFileSync(texts, "utf-8"))) {
  const vector = await encode([text], { pooling, normalize: true });
  rows.push(Array.from(vector.data));
}
writeFileSync(vectors, JSON.stringify(rows));
