package msg

import (
	"bytes"
	"testing"
)

// FuzzDecode: any bytes in any version of any message are refused, or mean
// something that is written in one way: what is written is read back to the
// same bytes.
func FuzzDecode(f *testing.F) {
	for i, m := range All() {
		for v := m.MinVersion(); v <= m.MaxVersion(); v++ {
			m.Default()
			m.SetVersion(v)
			f.Add(uint8(i), uint8(v), m.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, kind, version uint8, src []byte) {
		all := All()
		m, again := all[int(kind)%len(all)], All()[int(kind)%len(all)]
		v := m.MinVersion() + int16(version)%(m.MaxVersion()-m.MinVersion()+1)
		m.SetVersion(v)
		again.SetVersion(v)
		before := bytes.Clone(src)
		err := m.ReadFrom(src)
		if !bytes.Equal(src, before) {
			t.Fatal("the decoder wrote into its input")
		}
		if err != nil {
			return
		}
		once := m.AppendTo(nil)
		if err := again.ReadFrom(once); err != nil {
			t.Fatalf("%T version %d does not read what it wrote: %v", m, v, err)
		}
		if twice := again.AppendTo(nil); !bytes.Equal(once, twice) {
			t.Fatalf("%T version %d:\n% x\n% x", m, v, once, twice)
		}
	})
}
