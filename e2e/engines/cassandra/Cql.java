import com.datastax.driver.core.Cluster;
import com.datastax.driver.core.Row;
import com.datastax.driver.core.Session;
import com.datastax.driver.core.exceptions.AuthenticationException;
import com.datastax.driver.core.policies.RoundRobinPolicy;
import com.datastax.driver.core.policies.WhiteListPolicy;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Runs CQL statements, one per argument, on the node of this pod, as the role whose password is in the Secret. */
public final class Cql {
    private static final InetSocketAddress NODE = new InetSocketAddress("127.0.0.1", 9042);
    private static final String ROLE = "cassandra";

    /** What Cassandra gives this role in a new cluster. */
    private static final String DEFAULT_PASSWORD = "cassandra";

    public static void main(String[] statements) {
        try {
            String password = Files.readString(Path.of("/secret/password")).strip();
            if (statements.length == 1 && statements[0].equals("--take-password")) {
                takePassword(password);
            } else {
                run(password, statements);
            }
        } catch (Exception error) {
            // Without the trace: it is long, and a driver's may hold what was asked.
            System.err.println("cql: " + error.getMessage());
            System.exit(1);
        }
    }

    /** Replaces the default password, unless that was done before, by this pod or another. */
    private static void takePassword(String password) {
        try {
            run(password);
        } catch (AuthenticationException refused) {
            run(DEFAULT_PASSWORD, "ALTER ROLE " + ROLE + " WITH PASSWORD = '" + password.replace("'", "''") + "'");
            run(password);
        }
    }

    private static void run(String password, String... statements) {
        Cluster.Builder node = Cluster.builder()
            .addContactPointsWithPorts(NODE)
            .withCredentials(ROLE, password)
            .withLoadBalancingPolicy(new WhiteListPolicy(new RoundRobinPolicy(), List.of(NODE)))
            .withoutMetrics();
        try (Cluster cluster = node.build(); Session session = cluster.connect()) {
            for (String statement : statements) {
                for (Row row : session.execute(statement)) {
                    System.out.println(row.toString().replaceFirst("^Row", ""));
                }
            }
        }
    }
}
