// Package testcluster runs two clusters of one broker each, a source and a
// destination, as processes of their own, and the long line between them. The
// demo, the load generator and the end-to-end tests share it.
//
//	clients ──CLIENT──► source ◄──WAN── link ◄── destination ◄──CLIENT── clients
//
// The source has two listeners and tells whoever comes by WAN that it is to be
// found at the link's address, so the destination never gets past the link.
//
// Laws:
//   - A broker is the leader of a process group; it dies with the process that
//     started it, however that ends (the kernel sends the signal), and every
//     Kill and Close waits for it.
//   - Data is in one directory, removed by Close unless Keep is set.
//
// Owner thread: methods of one Broker and of Cluster are for one goroutine at
// a time, except Kill, which any may call.
package testcluster
