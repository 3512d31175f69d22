// Command kstatus reads Kubernetes objects as JSON documents from standard input and prints, one line
// each, what the kstatus library makes of them: the status, a tab, and the message.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	documents := json.NewDecoder(bufio.NewReader(in))
	for {
		var object map[string]any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("not a JSON object: %w", err)
		}
		result, err := status.Compute(&unstructured.Unstructured{Object: object})
		if err != nil {
			return err
		}
		message := strings.ReplaceAll(result.Message, "\n", " ")
		fmt.Fprintf(out, "%s\t%s\n", result.Status, message)
	}
}
