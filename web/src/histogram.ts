// Histograms of times as run folders hold them: flat lists of bucket and count, in buckets of 1/128 of an octave.

const SUB = 128;
// The highest bucket that a time of 64 bits falls in.
const BUCKET_MAX = (64 - 7) * SUB + SUB - 1;

// The form in a line of `windows`.
export interface Stored {
  n: number;
  sum_ns: number;
  max_ns: number;
  buckets: number[];
}

// The ends of a bucket, nanoseconds.
function bounds(bucket: number): [number, number] {
  if (bucket < SUB) return [bucket, bucket + 1];
  const width = 2 ** (Math.floor(bucket / SUB) - 1);
  const low = ((bucket % SUB) + SUB) * width;
  return [low, low + width];
}

export class Histogram {
  count = 0;
  private sumNs = 0;
  private maxNs = 0;
  private readonly counts = new Map<number, number>();
  private sorted: [number, number][] | null = null;

  // Adds the times of another histogram. Throws an error if its counts do not add up.
  add(stored: Stored): void {
    const { n, sum_ns, max_ns, buckets } = stored;
    let total = 0;
    for (let at = 0; at < buckets.length; at += 2) {
      const [bucket, count] = [buckets[at], buckets[at + 1]];
      if (bucket === undefined || !Number.isInteger(bucket) || bucket < 0 || bucket > BUCKET_MAX) throw new Error(`a histogram has no bucket ${bucket}`);
      if (count === undefined || !(count >= 0)) throw new Error(`bucket ${bucket} of a histogram has no count`);
      this.counts.set(bucket, (this.counts.get(bucket) ?? 0) + count);
      total += count;
    }
    if (total !== n) throw new Error(`a histogram of ${n} times has ${total} in its buckets`);
    this.count += n;
    this.sumNs += sum_ns;
    this.maxNs = Math.max(this.maxNs, max_ns);
    this.sorted = null;
  }

  private buckets(): [number, number][] {
    this.sorted ??= [...this.counts].sort((a, b) => a[0] - b[0]);
    return this.sorted;
  }

  get meanS(): number | null {
    return this.count > 0 ? (this.sumNs * 1e-9) / this.count : null;
  }

  // How many times are at or below `tS` seconds. A bucket that contains `tS` counts in proportion.
  within(tS: number): number {
    let below = 0;
    for (const [bucket, count] of this.buckets()) {
      const [low, high] = bounds(bucket);
      const part = Math.min(1, Math.max(0, (tS - low * 1e-9) / ((high - low) * 1e-9)));
      if (part === 0) break;
      below += part * count;
    }
    return below;
  }

  // The time in seconds that a share `p` of the times does not exceed.
  quantile(p: number): number | null {
    if (this.count === 0) return null;
    let below = 0;
    for (const [bucket, count] of this.buckets()) {
      if (below + count >= p * this.count) {
        const [low, high] = bounds(bucket);
        return Math.min(low + ((high - low) * (p * this.count - below)) / count, this.maxNs) * 1e-9;
      }
      below += count;
    }
    return this.maxNs * 1e-9;
  }
}
