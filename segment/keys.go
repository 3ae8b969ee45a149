package segment

import "crypto/sha256"

// keyTable maps keys, by 128 bits of their SHA-256, to offsets: open
// addressing, 24 bytes a slot, no more than three quarters full.
type keyTable struct {
	slots []keySlot
	used  int
}

type keySlot struct {
	key [16]byte
	off int64 // +1; 0 = free
}

func newKeyTable(keys int64) *keyTable {
	n := int64(16)
	for n*3/4 < keys {
		n *= 2
	}
	return &keyTable{slots: make([]keySlot, n)}
}

func (t *keyTable) room() int { return len(t.slots)*3/4 - t.used }

func (t *keyTable) slot(key []byte) *keySlot {
	sum := sha256.Sum256(key)
	k := [16]byte(sum[:16])
	for i := int(sum[16]) | int(sum[17])<<8 | int(sum[18])<<16 | int(sum[19])<<24; ; i++ {
		s := &t.slots[i&(len(t.slots)-1)]
		if s.off == 0 || s.key == k {
			s.key = k
			return s
		}
	}
}

func (t *keyTable) put(key []byte, off int64) {
	s := t.slot(key)
	if s.off == 0 {
		t.used++
	}
	s.off = max(s.off, off+1)
}

func (t *keyTable) get(key []byte) (int64, bool) {
	s := t.slot(key)
	return s.off - 1, s.off > 0
}
