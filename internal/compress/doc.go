// Package compress has the four codecs of record batches, with bounded output.
//
//	payload ──Decompress(codec, src, limit)──► records, at most limit bytes
//	records ──Compress(codec, src)──────────► payload any Kafka client reads
//
// Formats: gzip members; snappy in xerial framing or as one raw block, written
// in xerial framing; lz4 frames with independent blocks; zstd frames.
//
// Owner thread: any; coders are kept in pools and never shared while in use. Laws:
//
//   - The output never exceeds limit: one byte more is ErrTooLarge.
//   - Memory taken follows the bytes really produced, not sizes a header
//     claims, plus a constant per codec.
//   - No goroutine is started.
package compress
