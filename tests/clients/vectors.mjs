// node vectors.mjs <module> <command>: JSON in on stdin, JSON out on stdout.
//   check      [{randomizer, category, words, report}] -> indices whose report differs
//   make       [{randomizer, count, numbers}] -> vectors of the same form, from fresh random words
//   law        {randomizer, category, words} -> {report: number of word sequences}
//   device     {envelopes, key, maxEpsilon, value or values} -> what a device, restarted before each, answers to each envelope
//   tabs       {envelope, key, maxEpsilon, value, tabs} -> what that many devices on one storage answer at the same time
//   bare       {key} -> what a device without storage, and one without locks, answer
//   category   {randomizer, values} -> category of each value, or its refusal
//   places     {randomizer, positions: [[lat, lon]]} -> category of each, or its refusal
//   supports   [{randomizer, report}] -> for each report the categories that agree with it
//   verify     {envelope, key} -> {id, epsilon} or {error}
import { readFileSync } from "node:fs";
const client = await import(process.argv[2]);
const asked = JSON.parse(readFileSync(0, "utf8"));
const from = (words) => { let i = 0; return () => words[i++]; };
const storing = () => {
  const kept = new Map();
  return { kept, getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
};
/** navigator.locks of a browser: one holder at a time, the others wait in line. */
const locking = () => {
  let last = Promise.resolve();
  return { request: (_, act) => { const mine = last.then(act); last = mine.catch(() => {}); return mine; } };
};
const answer = (promise) => promise.then((made) => made.body.length, (fault) => fault.message);
const tryTo = (act) => { try { return act(); } catch (fault) { return fault.message; } };
const say = (data) => process.stdout.write(JSON.stringify(data));

switch (process.argv[3]) {
  case "check":
    say(asked.flatMap((v, i) =>
      client.toHex(client.report(v.randomizer, v.category, from(v.words))) === v.report ? [] : [i]));
    break;
  case "make":
    say(asked.flatMap(({ randomizer, count, numbers }) => Array.from({ length: count }, (_, i) => {
      const words = [];
      const random = client.randomWords(randomizer.bits);
      const category = numbers ? numbers[i % numbers.length] : i % client.size(randomizer);
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
    const storage = storing(), answers = [], reports = [];
    for (const [i, envelope] of asked.envelopes.entries()) {
      const device = new client.Device(asked.key, { maxEpsilon: asked.maxEpsilon, storage, locks: locking() });
      const made = device.report(envelope, asked.values ? asked.values[i] : asked.value);
      answers.push(await answer(made));
      reports.push(await made.then((sent) => client.toHex(sent.report), () => null));
    }
    say({ answers, reports, kept: [...storage.kept.values()] });
    break;
  }
  case "tabs": {
    const more = { maxEpsilon: asked.maxEpsilon, storage: storing(), locks: locking() };
    const devices = Array.from({ length: asked.tabs }, () => new client.Device(asked.key, more));
    say(await Promise.all(devices.map((device) => answer(device.report(asked.envelope, asked.value)))));
    break;
  }
  case "bare": {
    const forgetful = { getItem: () => null, setItem: () => {} };
    const damaged = { getItem: () => '{"spent":-100,"sent":{}}', setItem: () => {} };
    const made = (more) => new client.Device(asked.key, { maxEpsilon: 1, ...more });
    say([
      tryTo(() => made({ storage: null, locks: locking() })),
      tryTo(() => made({ storage: storing(), locks: null })),
      await answer(made({ storage: forgetful, locks: locking() }).report(asked.envelope, null)),
      await answer(made({ storage: damaged, locks: locking() }).report(asked.envelope, null)),
    ]);
    break;
  }
  case "category":
    say(asked.values.map((value) => tryTo(() => client.categoryOf(asked.randomizer, value))));
    break;
  case "places": {
    const { placeOf } = await import(new URL("kasuri-place.js", process.argv[2]));
    client.checkRandomizer(asked.randomizer);
    const found = asked.positions.map(([latitude, longitude]) =>
      placeOf(asked.randomizer, { latitude, longitude }).then((label) => client.categoryOf(asked.randomizer, label), (fault) => fault.message));
    say(await Promise.all(found));
    break;
  }
  case "supports":
    say(asked.map((v) => client.supports(v.randomizer, client.fromHex(v.report)).flatMap((agrees, x) => (agrees ? [x] : []))));
    break;
  case "verify":
    try {
      const round = await client.verifyRound(asked.envelope, asked.key);
      say({ id: round.id, epsilon: round.epsilon, fingerprint: client.toHex(round.fingerprint) });
    } catch (fault) {
      say({ error: fault.message });
    }
}
