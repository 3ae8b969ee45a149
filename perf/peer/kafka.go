package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Version of Apache Kafka that is fetched.
const Version = "4.3.1"

// ErrMissing is what a machine lacks to run Kafka.
var ErrMissing = errors.New("not here")

// artifacts are Kafka's Maven coordinates; a log4j is not among its
// dependencies.
var artifacts = []string{"org.apache.kafka:kafka_2.13:" + Version, "org.apache.kafka:kafka-tools:" + Version,
	"org.apache.logging.log4j:log4j-slf4j-impl:2.25.1", "org.apache.logging.log4j:log4j-core:2.25.1",
	"org.apache.logging.log4j:log4j-api:2.25.1", "org.apache.logging.log4j:log4j-1.2-api:2.25.1"}

// Jars is the directory with Kafka's jars. They are fetched once, into the
// user's cache directory.
func Jars(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("java, which runs Kafka, is %w", ErrMissing)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "lockstep", "kafka-"+Version)
	libs := filepath.Join(dir, "libs")
	if list, _ := filepath.Glob(filepath.Join(libs, "kafka_2.13-*.jar")); len(list) > 0 {
		return libs, nil
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", fmt.Errorf("mvn, which fetches Kafka, is %w", ErrMissing)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var deps strings.Builder
	for _, a := range artifacts {
		f := strings.Split(a, ":")
		fmt.Fprintf(&deps, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>", f[0], f[1], f[2])
	}
	pom := `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>lockstep</groupId><artifactId>peer</artifactId><version>1</version><dependencies>` + deps.String() + `</dependencies></project>`
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom), 0o600); err != nil {
		return "", err
	}
	// A fetch that is broken off leaves no directory that looks whole.
	part := filepath.Join(dir, "part")
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+part)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("kafka's jars are %w: mvn: %w: %s", ErrMissing, err, out[max(0, len(out)-logTail):])
	}
	return libs, os.Rename(part, libs)
}

// Java runs a class of Kafka's.
func Java(ctx context.Context, libs string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-cp", filepath.Join(libs, "*")}, args...)...)
}

// ScriptJVM are the flags of Kafka's own start script, heap included.
var ScriptJVM = []string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
	"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"}

// Kafka is Apache Kafka: a controller and broker in one, freshly formatted. jvm
// are flags, settings lines of server.properties beside those it cannot do
// without. Its controller does not take a pause for the broker's death.
func Kafka(ctx context.Context, dir, name, libs string, jvm []string, settings ...string) (*Broker, error) {
	b, err := newBroker(dir, name)
	if err != nil {
		return nil, err
	}
	controller, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	settings = append([]string{"broker.session.timeout.ms=3600000"}, settings...)
	b.Settings = append(append([]string{}, jvm...), settings...)
	props := filepath.Join(b.Dir, "server.properties")
	text := fmt.Sprintf("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@%s\nlisteners=PLAINTEXT://%s,CONTROLLER://%s\n"+
		"advertised.listeners=PLAINTEXT://%s\ncontroller.listener.names=CONTROLLER\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"+
		"log.dirs=%s\noffsets.topic.replication.factor=1\n%s\n", controller, b.Addr, controller, b.Addr, filepath.Join(b.Dir, "data"), strings.Join(settings, "\n"))
	if err := os.WriteFile(props, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if out, err := Java(ctx, libs, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", props).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("formatting Kafka's directory: %w: %s", err, out)
	}
	b.p.args = append(append([]string{"java"}, jvm...), "-cp", filepath.Join(libs, "*"), "kafka.Kafka", props)
	return b, nil
}
