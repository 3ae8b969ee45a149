package baseline

import (
	"os"
	"testing"
)

func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	f, err := Measure(dir, 1100)
	if err != nil || f.FdatasyncP50 <= 0 || f.FdatasyncP99 < f.FdatasyncP50 || f.FdatasyncOf != 1100 || f.LoopbackP50 <= 0 || f.LoopbackP50 > 50 {
		t.Errorf("%+v, err %v", f, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, err %v", left, err)
	}
	if _, err := Measure(dir+"/none", 1); err == nil {
		t.Error("measured in a directory that is not there")
	}
}

func TestGroup(t *testing.T) {
	if v, err := Group(t.TempDir(), 2, 4096); err != nil || v <= 0 {
		t.Errorf("%v MB/s, %v", v, err)
	}
	if _, err := Group("no such directory", 1, 1); err == nil {
		t.Error("no error of a directory that is not there")
	}
}
