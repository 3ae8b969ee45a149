// Command lockstep is the broker and everything an operator needs beside it.
package main
