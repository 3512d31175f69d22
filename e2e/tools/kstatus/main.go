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
		var document json.RawMessage
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		// Kubernetes' own decoder: whole numbers stay whole.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document); err != nil {
			return fmt.Errorf("not an object: %w", err)
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		message := strings.ReplaceAll(result.Message, "\n", " ")
		fmt.Fprintf(out, "%s\t%s\n", result.Status, message)
	}
}
