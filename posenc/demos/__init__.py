"""The tour, the study and the test vectors: programs that use only the public interface of posenc."""
