// A second client of the protocol in proto/SPEC.md, in another language and from that text alone: node's own sockets, nothing else. It does what section
// 12 asks of a minimal client. The test TestNodeClient of gateway/server plays its scenarios against a real gateway:
//
//   node client.mjs order HOST PORT      one order, an unknown operation, a PING
//   node client.mjs exhaust HOST PORT    more at once than the credit covers
//   node client.mjs drain HOST PORT      orders without end, until the gateway says GOAWAY
//   node client.mjs key HOST PORT KEY    the answer to a key
//
// The result is one line of JSON on standard output. The drain scenario prints the line "ready" before it, with its first answer.
import net from 'node:net';

const HEADER = 24;
const Type = { HELLO: 1, HELLO_ACK: 2, REQUEST: 3, RESPONSE: 4, REJECT: 5, CREDIT: 6, DEMAND: 7, RECLAIM: 8, PING: 9, PONG: 10, GOAWAY: 11, ERROR: 12 };
const IGNORABLE = 0x80;
const SUBMIT_ORDER = 1;
const OUTCOME_NOT_PROCESSED = 1;

// --- protobuf, as much of it as orders need --------------------------------------------------------------------------

function varint(value) {
  const bytes = [];
  let v = BigInt(value);
  while (v >= 0x80n) {
    bytes.push(Number(v & 0x7fn) | 0x80);
    v >>= 7n;
  }
  bytes.push(Number(v));
  return Buffer.from(bytes);
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

function encodeOrder({ id, symbol, side, quantity, price, tag }) {
  return Buffer.concat([
    bytes(1, Buffer.from(id)), bytes(2, Buffer.from(symbol)),
    number(3, side === 'buy' ? 1 : 2), number(4, 1 /* LIMIT */), number(5, 1 /* DAY */),
    number(6, quantity), number(7, price), bytes(15, tag),
  ]);
}

// decode returns a message's fields by number: BigInt for varints and fixed64, Buffer for what has a length.
function decode(message) {
  const fields = new Map();
  let at = 0;
  const readVarint = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message[at++];
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const key = Number(readVarint());
    switch (key & 7) {
      case 0:
        fields.set(key >> 3, readVarint());
        break;
      case 1:
        fields.set(key >> 3, message.readBigUInt64LE(at));
        at += 8;
        break;
      case 2: {
        const length = Number(readVarint());
        fields.set(key >> 3, message.subarray(at, at + length));
        at += length;
        break;
      }
      default:
        throw new Error(`wire type ${key & 7} is not used by this contract`);
    }
  }
  return fields;
}

const decodeAck = (payload) => {
  const f = decode(payload);
  return { id: String(f.get(1) ?? ''), orderId: Number(f.get(2) ?? 0n), status: Number(f.get(3) ?? 0n), text: String(f.get(17) ?? ''), tag: f.get(15) ?? Buffer.alloc(0), sentNs: f.get(14) ?? 0n };
};

const decodeDetail = (payload) => {
  const f = decode(payload);
  return { reason: Number(f.get(1) ?? 0n), outcome: Number(f.get(2) ?? 0n), message: String(f.get(5) ?? '') };
};

// --- the protocol ----------------------------------------------------------------------------------------------------

const after = (a, b) => ((a - b) | 0) > 0; // serial numbers
const u32 = (n) => n >>> 0;

class Client {
  constructor(host, port, key = '') {
    this.released = 0;
    this.next = 1; // correlation id of the next request
    this.queue = []; // not sent: {operation, payload, cost, resolve, reject}
    this.inFlight = new Map(); // by correlation id
    this.asked = null; // the request at the head of the queue when DEMAND was sent last
    this.counts = { demands: 0, credits: 0, reclaims: 0, sent: 0, mostOutstanding: 0 };
    this.goAway = null;
    this.pongs = [];
    this.chunks = [];
    this.buffered = 0;
    this.opened = new Promise((resolve, reject) => Object.assign(this, { resolveOpen: resolve, rejectOpen: reject }));
    this.ended = new Promise((resolve) => (this.resolveEnd = resolve));

    this.socket = net.connect({ host, port, noDelay: true });
    this.socket.on('connect', () => this.hello(key));
    this.socket.on('data', (chunk) => this.take(chunk));
    this.socket.on('error', (error) => this.end(2, error.message));
    this.socket.on('close', () => this.end(2, 'the connection ended'));
  }

  write(header, payload = Buffer.alloc(0)) {
    const head = Buffer.alloc(HEADER);
    head.writeUInt32LE(payload.length, 0);
    head.writeUInt8(header.type, 4);
    head.writeUInt16LE(header.code ?? 0, 6);
    head.writeUInt32LE(u32(header.correlation ?? 0), 8);
    head.writeUInt32LE(u32(header.credit ?? 0), 12);
    head.writeUInt32LE(u32(header.aux ?? 0), 16);
    head.writeUInt16LE(Math.min(header.x ?? 0, 0xffff), 20);
    head.writeUInt16LE(Math.min(header.y ?? 0, 0xffff), 22);
    this.socket.write(payload.length > 0 ? Buffer.concat([head, payload]) : head);
  }

  hello(key) {
    const payload = Buffer.alloc(18);
    payload.write('TGOE', 0, 'latin1');
    payload.writeUInt16LE(1, 4); // lowest version
    payload.writeUInt16LE(1, 6); // highest
    payload.writeUInt32LE(1, 8); // features: credit
    payload.writeUInt32LE(1 << 21, 12); // largest payload taken
    payload.writeUInt16LE(key.length, 16);
    this.write({ type: Type.HELLO, correlation: this.next }, Buffer.concat([payload, Buffer.from(key)]));
  }

  take(chunk) {
    this.chunks.push(chunk);
    this.buffered += chunk.length;
    for (;;) {
      if (this.buffered < HEADER) return;
      if (this.chunks[0].length < HEADER) this.chunks = [Buffer.concat(this.chunks)];
      const length = HEADER + this.chunks[0].readUInt32LE(0);
      if (this.buffered < length) return;
      const all = this.chunks.length === 1 ? this.chunks[0] : Buffer.concat(this.chunks);
      this.chunks = [all.subarray(length)];
      this.buffered -= length;
      this.frame(all.subarray(0, HEADER), all.subarray(HEADER, length));
    }
  }

  frame(head, payload) {
    const type = head.readUInt8(4);
    const code = head.readUInt16LE(6);
    const correlation = head.readUInt32LE(8);
    const credit = head.readUInt32LE(12);
    const aux = head.readUInt32LE(16);
    switch (type) {
      case Type.HELLO_ACK:
        this.acknowledged(credit, aux, payload);
        break;
      case Type.RESPONSE:
      case Type.REJECT: {
        this.grant(credit);
        const request = this.inFlight.get(correlation);
        if (request === undefined) throw new Error(`answer to ${correlation}, which is not in flight`);
        this.inFlight.delete(correlation);
        if (type === Type.RESPONSE) request.resolve(payload);
        else request.reject(decodeDetail(payload));
        this.send();
        if (this.goAway !== null && this.inFlight.size === 0) this.socket.end();
        break;
      }
      case Type.CREDIT:
        this.counts.credits++;
        this.grant(credit);
        this.send();
        break;
      case Type.PONG:
        this.grant(credit);
        this.pongs.shift()?.({ correlation, used: aux });
        break;
      case Type.RECLAIM:
        this.counts.reclaims++;
        this.grant(credit);
        this.released = u32(this.released + Math.min(aux, this.free()));
        this.demand();
        break;
      case Type.GOAWAY:
        this.goAway = decodeDetail(payload);
        for (const [id, request] of this.inFlight) {
          if (!after(id, correlation)) continue;
          this.inFlight.delete(id);
          request.reject({ ...this.goAway, outcome: OUTCOME_NOT_PROCESSED });
        }
        this.refuseQueue(this.goAway);
        if (this.inFlight.size === 0) this.socket.end();
        break;
      case Type.ERROR: {
        const detail = decodeDetail(payload);
        this.rejectOpen(detail);
        this.end(detail.outcome, detail.message, detail.reason);
        break;
      }
      default:
        if (type < IGNORABLE) throw new Error(`a server may not send type ${type}`);
    }
  }

  acknowledged(granted, used, payload) {
    if (payload.toString('latin1', 0, 4) !== 'TGOE') throw new Error('not the protocol');
    this.granted = granted;
    this.used = used;
    const entries = payload.readUInt16LE(6);
    this.model = { base: payload.readUInt32LE(20), unit: payload.readUInt32LE(24), answers: [] };
    for (let i = 0; i < entries; i++) this.model.answers.push(payload.readUInt32LE(44 + 4 * i));
    this.floor = payload.readUInt32LE(16);
    this.largest = payload.readUInt32LE(40);
    this.timer = setInterval(() => this.write({ type: Type.PING, aux: this.used, credit: this.released }), payload.readUInt32LE(28) / 3);
    this.resolveOpen();
  }

  cost(operation, size) {
    const { base, unit, answers } = this.model;
    return base + Math.ceil((size + (answers[operation] ?? answers[0])) / unit);
  }

  free() {
    return (this.granted - this.used - this.released) | 0;
  }

  grant(counter) {
    if (after(counter, this.granted)) this.granted = counter;
  }

  // request resolves with the answer's payload, or rejects with {reason, outcome, message}.
  request(operation, payload) {
    return new Promise((resolve, reject) => {
      const cost = this.cost(operation, payload.length);
      if (this.goAway !== null) return reject({ ...this.goAway, outcome: OUTCOME_NOT_PROCESSED });
      if (this.dead !== undefined) return reject({ ...this.dead, outcome: OUTCOME_NOT_PROCESSED });
      if (cost > this.largest) return reject({ reason: 0, outcome: OUTCOME_NOT_PROCESSED, message: `a cost of ${cost} is never covered` });
      this.queue.push({ operation, payload, cost, resolve, reject });
      this.send();
    });
  }

  send() {
    while (this.queue.length > 0 && this.free() - this.queue[0].cost >= 0) {
      const request = this.queue.shift();
      this.used = u32(this.used + request.cost);
      this.inFlight.set(this.next, request);
      this.counts.sent++;
      this.counts.mostOutstanding = Math.max(this.counts.mostOutstanding, this.inFlight.size);
      const y = this.queue[0]?.cost ?? 0;
      const x = this.queue.reduce((sum, r) => sum + r.cost, 0);
      this.write({ type: Type.REQUEST, code: request.operation, correlation: this.next, credit: this.released, x, y }, request.payload);
      this.next = u32(this.next + 1);
      this.asked = this.queue[0] ?? null; // the request has said it
    }
    if (this.queue.length > 0 && this.asked !== this.queue[0]) this.demand();
  }

  demand() {
    this.counts.demands++;
    this.asked = this.queue[0] ?? null;
    this.write({ type: Type.DEMAND, credit: this.released, aux: this.queue.reduce((sum, r) => sum + r.cost, 0), y: this.queue[0]?.cost ?? 0 });
  }

  ping(correlation) {
    this.write({ type: Type.PING, correlation, aux: this.used, credit: this.released });
    return new Promise((resolve) => this.pongs.push(resolve));
  }

  refuseQueue(why) {
    for (const request of this.queue.splice(0)) request.reject({ ...why, outcome: OUTCOME_NOT_PROCESSED });
  }

  end(outcome, message, reason = 0) {
    if (this.dead !== undefined) return;
    this.dead = { reason, outcome, message };
    clearInterval(this.timer);
    this.rejectOpen(this.dead);
    for (const request of this.inFlight.values()) request.reject(this.dead);
    this.inFlight.clear();
    this.refuseQueue(this.dead);
    this.socket.end();
    this.resolveEnd();
  }

  close() {
    this.socket.end();
    return this.ended;
  }
}

// --- scenarios -------------------------------------------------------------------------------------------------------

const [scenario, host, port, key] = process.argv.slice(2);
const client = new Client(host, Number(port), key);
const print = (result) => console.log(JSON.stringify(result));

const order = (n, size) => ({ id: `node-${n}`, symbol: 'ACME', side: n % 2 === 0 ? 'buy' : 'sell', quantity: 1 + (n % 7), price: 10000, tag: Buffer.alloc(size, n) });

async function submit(n, size) {
  const sent = order(n, size);
  const ack = decodeAck(await client.request(SUBMIT_ORDER, encodeOrder(sent)));
  if (ack.id !== sent.id) throw new Error(`the answer to ${sent.id} is for ${ack.id}`);
  if (!ack.tag.equals(sent.tag)) throw new Error(`the answer to ${sent.id} has another tag`);
  if (ack.status === 5) throw new Error(`order ${sent.id} is rejected: ${ack.text}`);
  if (ack.sentNs === 0n) throw new Error(`the answer to ${sent.id} has no sent_ns`);
  return ack;
}

const scenarios = {
  async order() {
    await client.opened;
    const ack = await submit(0, 64);
    const unknown = await client.request(99, Buffer.alloc(0)).then(() => null, (detail) => detail);
    const pong = await client.ping(4711);
    await client.close();
    print({ orderId: ack.orderId, status: ack.status, unknown, pong: pong.correlation, agree: pong.used === client.used });
  },

  async exhaust() {
    await client.opened;
    const jobs = [];
    for (let n = 0; n < 300; n++) jobs.push(submit(n, n % 3 === 0 ? 64 << 10 : 64)); // all at once: the client queues what credit does not cover
    const acks = await Promise.all(jobs);
    await client.close();
    print({ acked: acks.length, floor: client.floor, ...client.counts });
  },

  async drain() {
    await client.opened;
    const acked = [];
    const notProcessed = [];
    const unknown = [];
    let n = 0;
    const one = async () => {
      while (client.goAway === null && client.dead === undefined) {
        const id = n++;
        try {
          await submit(id, 64);
          if (acked.length === 0) console.log('ready');
          acked.push(`node-${id}`);
        } catch (detail) {
          if (detail instanceof Error) throw detail;
          (detail.outcome === OUTCOME_NOT_PROCESSED ? notProcessed : unknown).push(`node-${id}`);
        }
      }
    };
    await Promise.all(Array.from({ length: 50 }, one));
    await client.ended;
    print({ acked, notProcessed, unknown, reason: client.goAway?.reason ?? 0 });
  },

  async key() {
    const refused = await client.opened.then(() => null, (detail) => detail);
    await client.close();
    print({ refused });
  },
};

await scenarios[scenario]();
