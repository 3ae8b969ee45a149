package api

import (
	"encoding/binary"
	"testing"

	"lockstep/internal/wire"
)

// FuzzServe: any body of any key and version closes the connection or gets one
// frame that is whole and answers this request; no request changes its body.
func FuzzServe(f *testing.F) {
	var rows []wire.API
	for _, row := range wire.APIs() {
		if !row.Hot {
			rows = append(rows, row)
		}
	}
	for i, row := range rows {
		for _, v := range []int16{row.Min, row.Max} {
			req, _ := sample(row.Key, v)
			req.SetVersion(v)
			f.Add(uint8(i), uint8(v-row.Min), req.AppendTo(nil))
		}
	}
	b := cautious(f)
	f.Fuzz(func(t *testing.T, key, version uint8, body []byte) {
		row := rows[int(key)%len(rows)]
		v := row.Min + int16(version)%(row.Max-row.Min+1)
		before := string(body)
		frame := b.serve(row.Key, v, "PLAINTEXT", body)
		if string(body) != before {
			t.Fatal("the body was changed")
		}
		if frame == nil {
			return
		}
		if len(frame) < 8 || int(binary.BigEndian.Uint32(frame)) != len(frame)-4 || binary.BigEndian.Uint32(frame[4:]) != correlation {
			t.Fatalf("%s version %d: not an answer: % x", row.Name, v, frame)
		}
	})
}
