// An HTTP service, or its client: java Web.java serve PORT | java Web.java fetch PORT.
import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.InetSocketAddress;
import java.net.URL;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class Web {
    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        if (words[0].equals("serve")) {
            serve(port);
        } else {
            fetch(port);
        }
    }

    // Answers with the bytes it was sent, turned around.
    static void serve(int port) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 50);
        server.createContext("/", exchange -> {
            byte[] bytes = turned(exchange.getRequestBody().readAllBytes());
            exchange.sendResponseHeaders(200, bytes.length == 0 ? -1 : bytes.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(bytes);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }

    static void fetch(int port) throws Exception {
        long sum = 0;
        for (int turn = 1; turn <= 60; turn++) {
            byte[] body = new byte[1 + turn * 3989 % 150000];
            for (int k = 0; k < body.length; k++) {
                body[k] = (byte) (turn * 31 + k * 7);
            }
            HttpURLConnection connection =
                (HttpURLConnection) new URL("http://127.0.0.1:" + port + "/").openConnection(java.net.Proxy.NO_PROXY);
            connection.setRequestMethod("POST");
            connection.setDoOutput(true);
            connection.getOutputStream().write(body);
            byte[] answer = connection.getInputStream().readAllBytes();
            if (!Arrays.equals(answer, turned(body))) {
                throw new IllegalStateException("answer " + turn);
            }
            sum += Arrays.hashCode(answer);
        }
        System.out.println(sum);
    }

    static byte[] turned(byte[] bytes) {
        byte[] other = new byte[bytes.length];
        for (int k = 0; k < bytes.length; k++) {
            other[k] = bytes[bytes.length - 1 - k];
        }
        return other;
    }
}
