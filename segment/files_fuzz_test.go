package segment

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"testing"
)

// FuzzCheckpoint: any bytes in the small text files are refused or mean
// something that is written in one way.
func FuzzCheckpoint(f *testing.F) {
	f.Add(encodeCheckpoint(map[TopicPartition]int64{{"a", 0}: 5, {"b-c", 7}: 0}))
	f.Add(encodeEpochs([]EpochStart{{0, 0}, {4, 100}}))
	f.Add(encodeTopicID([16]byte{1, 2, 3}))
	f.Add([]byte("0\n-1\n"))
	f.Add([]byte("0\n99999999999\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, ok := decodeCheckpoint(data); ok {
			again, ok := decodeCheckpoint(encodeCheckpoint(m))
			if !ok || !reflect.DeepEqual(m, again) {
				t.Fatalf("checkpoint %v came back as %v", m, again)
			}
		}
		if s, ok := decodeEpochs(data); ok {
			again, ok := decodeEpochs(encodeEpochs(s))
			if !ok && len(s) > 0 || len(s) > 0 && !reflect.DeepEqual(s, again) {
				t.Fatalf("epochs %v came back as %v", s, again)
			}
			for i := 1; i < len(s); i++ {
				if s[i].Epoch <= s[i-1].Epoch || s[i].Start <= s[i-1].Start {
					t.Fatalf("epochs that do not rise: %v", s)
				}
			}
		}
		if id, ok := decodeTopicID(data); ok {
			if again, ok := decodeTopicID(encodeTopicID(id)); !ok || again != id {
				t.Fatalf("id %x came back as %x", id, again)
			}
		}
		if p, ok := parsePartition(string(data)); ok && p.String() != string(data) {
			t.Fatalf("%q is %v", data, p)
		}
	})
}

// FuzzProducerSnapshot: any bytes with a right checksum are refused or hold no
// more than they have room for, and are usable.
func FuzzProducerSnapshot(f *testing.F) {
	p := newProducers()
	p.Add(idempotent(0, 7, 0, 0, 3), 5)
	p.Add(idempotent(3, 9, 1, 4, 1), 6)
	whole := p.encode(44)
	f.Add(whole[:len(whole)-4])
	f.Add(newProducers().encode(0)[:snapshotHeader])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		p, offset, ok := decodeProducers(data)
		if !ok {
			return
		}
		again := p.encode(offset)
		if len(again) > len(data) {
			t.Fatalf("%d bytes hold more than they are: %d", len(data), len(again))
		}
		q, offset2, ok := decodeProducers(again)
		if !ok || offset2 != offset || !bytes.Equal(q.encode(offset), again) {
			t.Fatal("a snapshot does not come back")
		}
		for pid, e := range p.byID { // whatever they say, they can be asked and forgotten
			p.Check(pid, e.epoch, 0, 1)
			break
		}
		p.LastStable(1 << 40)
		p.Ongoing()
		p.Expire(1<<40, 1)
	})
}

// FuzzProperties: with any meta.properties a directory opens or says why not;
// one that opened opens again.
func FuzzProperties(f *testing.F) {
	good := openDir(f, NewMemFS(), "/data")
	text, err := good.fs.Meta().ReadFile("/data/" + propsFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(append(text, "cluster.id=abc\n"...))
	f.Add([]byte("version=1\nnode.id=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m := NewMemFS()
		d := openDir(t, m, "/data")
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := m.Meta().WriteFile("/data/"+propsFile, text); err != nil {
			t.Fatal(err)
		}
		d, err := OpenDir(m, "/data", DirOptions{NodeID: d.opts.NodeID})
		if err != nil {
			return
		}
		id := d.ClusterID()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if d, err = OpenDir(m, "/data", DirOptions{NodeID: d.opts.NodeID, ClusterID: id}); err != nil || d.ClusterID() != id {
			t.Fatalf("cluster %q, opened again %v", id, err)
		}
	})
}
