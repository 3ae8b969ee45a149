package wire

// Feature is a supported feature and its range of levels.
type Feature struct {
	Name     string
	Min, Max int16
}

// FinalizedFeature is a feature in force for the cluster.
type FinalizedFeature struct {
	Name     string
	Min, Max int16
}

// ApiVersionsAnswer is what an ApiVersions response says besides the table.
type ApiVersionsAnswer struct {
	ThrottleMs     int32
	Supported      []Feature
	Finalized      []FinalizedFeature
	FinalizedEpoch int64 // -1 = unknown; clients adopt features above -1
	Unstable       bool  // offer Produce 14, Fetch 20 and the sync mirror keys
}

// AppendApiVersions appends the body of an ApiVersions response of version 0-4.
func AppendApiVersions(b []byte, version int16, a *ApiVersionsAnswer) []byte {
	flex := version >= 3
	b = AppendInt16(b, int16(ErrNone))
	b = appendRanges(b, flex, a.Unstable)
	if version >= 1 {
		b = AppendInt32(b, a.ThrottleMs)
	}
	if !flex {
		return b
	}
	supported := 0
	for i := range a.Supported {
		if offered(version, &a.Supported[i]) {
			supported++
		}
	}
	b = AppendUvarint(b, uint32(bit(supported > 0)+bit(a.FinalizedEpoch != -1)+bit(len(a.Finalized) > 0)))
	if supported > 0 {
		b = BeginTag(b, 0)
		start := len(b)
		b = AppendArrayLen(b, supported, true)
		for i := range a.Supported {
			if f := &a.Supported[i]; offered(version, f) {
				b = appendFeature(b, f.Name, f.Min, f.Max)
			}
		}
		b = EndTag(b, start)
	}
	if a.FinalizedEpoch != -1 {
		b = append(b, 1, 8)
		b = AppendInt64(b, a.FinalizedEpoch)
	}
	if len(a.Finalized) > 0 {
		b = BeginTag(b, 2)
		start := len(b)
		b = AppendArrayLen(b, len(a.Finalized), true)
		for i := range a.Finalized {
			f := &a.Finalized[i]
			b = appendFeature(b, f.Name, f.Max, f.Min) // here the maximum comes first
		}
		b = EndTag(b, start)
	}
	return b
}

// AppendApiVersionsUnsupported appends the answer to a version we do not speak:
// always the version 0 body, with our own range of ApiVersions in it.
func AppendApiVersionsUnsupported(b []byte) []byte {
	a := Lookup(KeyApiVersions)
	b = AppendInt16(b, int16(ErrUnsupportedVersion))
	b = AppendArrayLen(b, 1, false)
	b = AppendInt16(b, a.Key)
	b = AppendInt16(b, a.Min)
	return AppendInt16(b, a.Max)
}

// offered hides features whose range starts at 0 from version 3: clients of
// that version refuse a whole answer that holds one.
func offered(version int16, f *Feature) bool { return version >= 4 || f.Min > 0 }

func appendRanges(b []byte, flex, unstable bool) []byte {
	n := 0
	for i := range apis {
		n += bit(apis[i].MaxVersion(unstable) >= 0)
	}
	b = AppendArrayLen(b, n, flex)
	for i := range apis {
		a := &apis[i]
		last := a.MaxVersion(unstable)
		if last < 0 {
			continue
		}
		b = AppendInt16(b, a.Key)
		b = AppendInt16(b, a.Min)
		b = AppendInt16(b, last)
		b = appendTagCount(b, 0, flex)
	}
	return b
}

func appendFeature(b []byte, name string, first, second int16) []byte {
	b = AppendString(b, name, true)
	b = AppendInt16(b, first)
	b = AppendInt16(b, second)
	return append(b, 0)
}

func bit(v bool) int {
	if v {
		return 1
	}
	return 0
}
