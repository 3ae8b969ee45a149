package control

import (
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// newTCPTransport listens for other members of the quorum.
func newTCPTransport(listen, advertise string, log hclog.Logger) (raft.Transport, error) {
	if advertise == "" {
		advertise = listen
	}
	addr, err := net.ResolveTCPAddr("tcp", advertise)
	if err != nil {
		return nil, fmt.Errorf("advertised address: %w", err)
	}
	return raft.NewTCPTransportWithLogger(listen, addr, 3, 5*time.Second, log)
}
