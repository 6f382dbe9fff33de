"""The tour and the study: two programs that use only the public interface of posenc."""
