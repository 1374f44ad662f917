// node vectors.mjs <module> <command>: JSON in on stdin, JSON out on stdout.
//   check      [{randomizer, category, words, report}] -> indices whose report differs
//   make       [{randomizer, count}] -> vectors of the same form, from fresh random words
//   law        {randomizer, category, words} -> {report: number of word sequences}
//   device     {envelopes, key, maxEpsilon, value} -> what a device, restarted before each, answers to each envelope
//   verify     {envelope, key} -> {id, epsilon} or {error}
import { readFileSync } from "node:fs";
const client = await import(process.argv[2]);
const asked = JSON.parse(readFileSync(0, "utf8"));
const from = (words) => { let i = 0; return () => words[i++]; };
const say = (data) => process.stdout.write(JSON.stringify(data));

switch (process.argv[3]) {
  case "check":
    say(asked.flatMap((v, i) =>
      client.toHex(client.report(v.randomizer, v.category, from(v.words))) === v.report ? [] : [i]));
    break;
  case "make":
    say(asked.flatMap(({ randomizer, count }) => Array.from({ length: count }, (_, i) => {
      const words = [];
      const random = client.randomWords(randomizer.bits);
      const category = i % client.size(randomizer);
      const report = client.report(randomizer, category, () => { words.push(random()); return words.at(-1); });
      return { randomizer, category, words, report: client.toHex(report) };
    })));
    break;
  case "law": {
    const N = 2 ** asked.randomizer.bits, counts = {};
    for (let k = 0; k < N ** asked.words; k++) {
      const words = Array.from({ length: asked.words }, (_, i) => Math.floor(k / N ** i) % N);
      const sent = client.toHex(client.report(asked.randomizer, asked.category, from(words)));
      counts[sent] = (counts[sent] ?? 0) + 1;
    }
    say(counts);
    break;
  }
  case "device": {
    const kept = new Map();
    const storage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
    const answers = [];
    for (const envelope of asked.envelopes) {
      const device = new client.Device(asked.key, { maxEpsilon: asked.maxEpsilon, storage });
      try {
        answers.push((await device.report(envelope, asked.value)).body.length);
      } catch (fault) {
        answers.push(fault.message);
      }
    }
    say({ answers, kept: [...kept.values()] });
    break;
  }
  case "verify":
    try {
      const round = await client.verifyRound(asked.envelope, asked.key);
      say({ id: round.id, epsilon: round.epsilon, fingerprint: client.toHex(round.fingerprint) });
    } catch (fault) {
      say({ error: fault.message });
    }
}
